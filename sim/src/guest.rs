//! The kernel's side of the paravirtual couriers on the simulated machine.

use std::cell::Cell;

use shootdown::x86_64::{
    Msrs,
    hyperv::{HyperVPlatform, Hypercall, InputPage},
    kvm::{KvmPlatform, StealTime},
};

use crate::machine::{
    current::with,
    hypervisor::{flush, registers},
};

/// What a guest shares with its hypervisor, by CPU number.
#[derive(Debug)]
pub(crate) struct Guest {
    pub steal: Box<[StealTime]>,
    pub input: Box<[InputPage]>,
    /// The virtual-processor indices that the CPUs have read.
    indices: Box<[Cell<Option<u32>>]>,
}

thread_local! {
    static GUEST: Cell<Option<&'static Guest>> = const { Cell::new(None) };
}

impl Guest {
    /// Memory for CPU numbers below `cpus`.
    pub(crate) fn new(cpus: usize) -> Self {
        Self {
            steal: (0..cpus).map(|_| StealTime::new()).collect(),
            input: (0..cpus).map(|_| InputPage::new()).collect(),
            indices: (0..cpus).map(|_| Cell::new(None)).collect(),
        }
    }

    /// Notes the index that the CPU `cpu` has read.
    pub(crate) fn know_index(&self, cpu: usize, index: u32) {
        self.indices[cpu].set(Some(index));
    }
}

/// Makes `guest` this thread's.
pub(crate) fn set_guest(guest: Option<&'static Guest>) {
    GUEST.set(guest);
}

/// This thread's guest.
pub(crate) fn guest() -> &'static Guest {
    GUEST
        .get()
        .unwrap_or_else(|| unreachable!("the machine of this thread is not virtual"))
}

/// The simulated guest.
#[derive(Debug)]
pub struct SimGuest;

// SAFETY: each CPU number has its own structure, which that CPU enables before it comes online.
unsafe impl KvmPlatform for SimGuest {
    fn steal_time(cpu: usize) -> &'static StealTime {
        &guest().steal[cpu]
    }
}

// SAFETY: each CPU number has its own page, whose address is its physical address here, and the index is what that CPU
// has read.
unsafe impl HyperVPlatform for SimGuest {
    type Call = Self;

    fn vp_index(cpu: usize) -> Option<u32> {
        guest().indices[cpu].get()
    }

    fn input(cpu: usize) -> Option<(&'static InputPage, u64)> {
        let page = &guest().input[cpu];
        Some((page, core::ptr::from_ref(page) as u64))
    }
}

// SAFETY: the simulated hypervisor does what it is asked, or says that it has not.
unsafe impl Hypercall for SimGuest {
    unsafe fn call(control: u64, input: u64) -> u64 {
        with(|m| {
            if m.cpus[m.current].interrupts_on {
                m.fail(String::from(
                    "interrupts are on while a hypercall's input is in use",
                ));
            }
        });
        flush::hypercall(control, input)
    }
}

// SAFETY: they act on the simulated CPU.
unsafe impl Msrs for SimGuest {
    unsafe fn read(register: u32) -> u64 {
        registers::read_msr(register)
    }

    unsafe fn write(register: u32, value: u64) {
        registers::write_msr(register, value);
    }
}
