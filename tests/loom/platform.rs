//! The kernel's side and the machine's instructions.

use std::sync::atomic::Ordering::Relaxed;

use loom::{
    sync::atomic::{Ordering::SeqCst, fence},
    thread,
};
use shootdown::{
    CpuSlot, Cpus, IpiPlatform, Platform,
    x86_64::{
        Instructions, Invlpgb, InvpcidKind,
        kvm::{KvmPlatform, StealTime},
    },
};

use crate::{
    broadcast,
    explore::FOREVER,
    machine::{current_cpu, machine},
    page::{Page, USER_PAGES},
};

/// How many CPUs a model may have.
pub const CPUS: usize = 3;
/// Turns of a waiting loop after which nobody will end it: loom lets the other threads go on first.
const PATIENCE: u64 = 100;
/// CR3: keep what the PCID has.
const NO_FLUSH: u64 = 1 << 63;

/// The kernel.
#[derive(Debug)]
pub struct Kernel;

// SAFETY: each thread says which CPU it is and stays it while it races; no interrupt preempts a thread; the slots are
// elements of an array that lives as long as the execution.
unsafe impl Platform for Kernel {
    const CPUS: usize = CPUS;

    fn current_cpu() -> usize {
        current_cpu()
    }

    fn pin() {}

    fn unpin() {}

    fn irq_save() -> usize {
        0
    }

    fn irq_restore(_: usize) {}

    fn slot(cpu: usize) -> &'static CpuSlot {
        &machine().cpu(cpu).slot
    }

    fn relax() {
        let turns = machine().me().turns.fetch_add(1, Relaxed);
        assert!(turns < PATIENCE, "{FOREVER}: {}", Self::current_cpu());
        machine().run_meanwhile();
        thread::yield_now();
    }
}

// SAFETY: a raised line stays raised until its CPU takes the interrupt.
unsafe impl IpiPlatform for Kernel {
    fn send_flush_ipi(targets: Cpus<'_>) {
        for cpu in targets.iter() {
            // A plain store could be ordered behind any number of the target's looks, that is, get lost.
            machine().cpu(cpu).interrupt.swap(1, Relaxed);
        }
    }
}

/// The instructions of the model.
#[derive(Debug)]
pub struct Model;

// SAFETY: each does to the model's TLB what its name says.
unsafe impl Instructions for Model {
    fn invlpg(address: u64) {
        machine().act_by_itself();
        if let Some(page) = Page::at(address) {
            machine().me().cached(page).store(0, Relaxed);
        }
    }

    fn invpcid(kind: InvpcidKind, _pcid: u16, _address: u64) {
        assert_eq!(kind, InvpcidKind::AllWithGlobals);
        machine().act_by_itself();
        for cached in machine().me().tlb.as_flattened() {
            cached.store(0, Relaxed);
        }
        // Kernel mappings may be fetched again at once.
        machine().fill(Page::Kernel);
    }

    fn read_cr3() -> u64 {
        machine().me().cr3.load(Relaxed)
    }

    unsafe fn write_cr3(value: u64) {
        machine().act_by_itself();
        broadcast::serialize();
        let me = machine().me();
        me.cr3.store(value & !NO_FLUSH, Relaxed);
        if value & NO_FLUSH == 0 {
            for page in USER_PAGES {
                me.cached(page).store(0, Relaxed);
            }
        }
    }

    fn read_cr4() -> u64 {
        /// PGE and PCIDE.
        const ENABLED: u64 = 1 << 7 | 1 << 17;
        ENABLED
    }

    unsafe fn write_cr4(_: u64) {
        unreachable!("PCIDs are enabled, and INVPCID is there");
    }

    fn read_efer() -> u64 {
        0
    }

    fn publish_before_ipi() {
        fence(SeqCst);
    }

    fn barrier_after_rmw() {
        if machine().me().weak.load(Relaxed) == 0 {
            fence(SeqCst);
        }
    }

    fn publish_before_invlpgb() {
        fence(SeqCst);
    }

    fn invlpgb(operands: Invlpgb) {
        broadcast::invlpgb(operands);
    }

    fn tlbsync() {
        broadcast::tlbsync();
    }
}

/// Where the steal times are.
#[derive(Debug)]
pub struct Steal;

// SAFETY: each CPU has its own for as long as the execution lasts.
unsafe impl KvmPlatform for Steal {
    fn steal_time(cpu: usize) -> &'static StealTime {
        &machine().cpu(cpu).steal_time
    }
}
