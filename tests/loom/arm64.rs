//! arm64: a CPU that loads a space against the end of the space.

use std::mem::ManuallyDrop;

use shootdown::{
    Granule, Paging, Space, TlbFlusher,
    aarch64::{Broadcast, Config, Instructions, Tlbi},
    variant::Broken,
};

use crate::{
    explore::{STALE, Scenario, unless_refused},
    machine::{machine, on, start},
    page::Page,
    platform::Kernel,
};

struct Machine {
    tlb: Broadcast<Kernel, Model, 1, 1>,
    space: ManuallyDrop<Space>,
}

loom::lazy_static! {
    static ref ARM64: Machine = {
        let tlb = Broadcast::new();
        tlb.init(Config::new(Paging::arm64(Granule::Size4K), 0x10_0000)).unwrap();
        let space = ManuallyDrop::new(tlb.space(0x20_0000).unwrap());
        Machine { tlb, space }
    };
}

/// What the TLB does is the hardware's business here: a frame is reached as long as its space can be loaded.
#[derive(Debug)]
struct Model;

// SAFETY: there is no TLB in this model, so nothing to drop, and no system register that matters.
unsafe impl Instructions for Model {
    fn tlbi(_: Tlbi, _: u64) {}

    fn dsb_ishst() {}

    fn dsb_ish() {}

    fn dsb_nsh() {}

    fn isb() {}

    unsafe fn write_ttbr0(_: u64) {}

    fn regime() -> (u8, u64) {
        (1, 0)
    }

    fn id_aa64mmfr0() -> u64 {
        0
    }

    fn id_aa64mmfr2() -> u64 {
        0
    }

    fn id_aa64isar0() -> u64 {
        0
    }

    fn midr() -> u64 {
        0
    }

    fn read_ttbr1() -> u64 {
        0
    }

    unsafe fn write_ttbr1(_: u64) {}

    fn tcr() -> u64 {
        // TG1: 4 KiB.
        0b10 << 30
    }
}

/// CPU 1 loads the space, of whose mask it may be a member already, while CPU 0 retires it. One of them is refused.
fn load(member: bool) {
    for cpu in 0..2 {
        on(cpu, || ARM64.tlb.online().unwrap());
    }
    if member {
        on(1, || {
            switch();
            unload();
        });
    }
    let cpu1 = start(1, || {
        if unless_refused(switch) {
            machine().access(Page::X);
            unload();
        }
    });
    if ARM64.tlb.retire(&ARM64.space).is_ok() {
        machine().reuse(Page::X);
    }
    cpu1.join().unwrap();
}

fn switch() {
    // SAFETY: no tables translate anything here, and the space lives as long as the execution.
    unsafe { ARM64.tlb.switch(&ARM64.space) }
}

fn unload() {
    // SAFETY: no tables translate anything here.
    unsafe { ARM64.tlb.unload() }
}

const COME_BACK: Scenario = Scenario::full(|| load(true));
const FIRST_VISIT: Scenario = Scenario::full(|| load(false));

#[test]
fn come_back() {
    COME_BACK.is_clean();
}

#[test]
fn come_back_without_the_barrier_of_the_switch() {
    COME_BACK.catches(Broken::NoSwitchBarrier, STALE);
}

#[test]
fn come_back_without_the_barrier_of_retire() {
    COME_BACK.catches(Broken::NoRetireBarrier, STALE);
}

#[test]
fn first_visit() {
    FIRST_VISIT.is_clean();
}

#[test]
fn first_visit_without_the_barrier_of_the_switch() {
    FIRST_VISIT.catches(Broken::NoSwitchBarrier, STALE);
}

#[test]
fn first_visit_without_the_barrier_of_retire() {
    FIRST_VISIT.catches(Broken::NoRetireBarrier, STALE);
}
