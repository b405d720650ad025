//! What guests get of a host in virtual time: steal times, and Hyper-V's hypercalls.

use std::cell::Cell;

use shootdown::x86_64::{
    hyperv::{HyperVPlatform, Hypercall, InputPage},
    kvm::{KvmPlatform, StealTime},
};

use super::{
    clockwork::{Clockwork, with},
    wait::point,
};

thread_local! {
    static STEAL: Cell<&'static [StealTime]> = const { Cell::new(&[]) };
    static INPUT: Cell<&'static [InputPage]> = const { Cell::new(&[]) };
}

/// Makes them this thread's.
pub(super) fn set_pages(steal: &'static [StealTime], input: &'static [InputPage]) {
    STEAL.set(steal);
    INPUT.set(input);
}

/// The kernel's side of a host in virtual time.
#[derive(Debug)]
pub struct TimedGuest;

// SAFETY: each CPU has its own, which nobody else uses.
unsafe impl KvmPlatform for TimedGuest {
    fn steal_time(cpu: usize) -> &'static StealTime {
        &STEAL.get()[cpu]
    }
}

// SAFETY: VP indices are CPU numbers; each CPU has its own page. An address stands for the page's owner.
unsafe impl HyperVPlatform for TimedGuest {
    type Call = TimedCall;

    fn vp_index(cpu: usize) -> Option<u32> {
        u32::try_from(cpu).ok()
    }

    fn input(cpu: usize) -> Option<(&'static InputPage, u64)> {
        Some((&INPUT.get()[cpu], 0x1000 * cpu as u64))
    }
}

/// The hypercall in virtual time.
#[derive(Debug)]
pub struct TimedCall;

/// The word of the input page that has the mask of processors.
const MASK: usize = 2;

// SAFETY: it acts on nothing of the host's; what is dropped is counted.
unsafe impl Hypercall for TimedCall {
    unsafe fn call(control: u64, _input: u64) -> u64 {
        point();
        with(|m| {
            let mask = INPUT.get()[m.current].word(MASK);
            m.flush_by_host(mask);
        });
        // Success, and all of the list.
        (control >> 32 & 0xfff) << 32
    }
}

impl Clockwork {
    /// vCPUs that run leave the guest, drop everything and come back; the others do so when they come back (Linux,
    /// arch/x86/kvm/hyperv.c).
    fn flush_by_host(&mut self, mask: u64) {
        let me = self.current;
        let (exit, send) = (self.costs.vm_exit, self.costs.ipi_send);
        let mut farthest = 0;
        let mut cost = exit;
        for cpu in (0..self.cpus.len()).filter(|cpu| mask >> cpu & 1 != 0) {
            let delivery = self.costs.delivery(me, cpu);
            let it = &mut self.cpus[cpu];
            if it.out {
                it.flush_on_entry = true;
            } else {
                it.cold.clear();
                it.owed += exit;
                cost += send;
                farthest = farthest.max(delivery);
            }
        }
        self.spend(cost + farthest);
    }
}
