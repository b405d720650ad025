//! The kernel's side of the flusher in virtual time.

use std::cell::Cell;

use shootdown::{CpuSlot, Cpus, IpiPlatform, Platform};

use super::{
    clockwork::with,
    wait::{point, relax, take_interrupt},
};

thread_local! {
    static SLOTS: Cell<&'static [CpuSlot]> = const { Cell::new(&[]) };
}

/// The platform of a machine in virtual time with up to `CPUS` CPUs.
#[derive(Debug)]
pub struct TimedPlatform<const CPUS: usize>;

/// Makes `slots` this thread's.
pub(super) fn set_slots(slots: &'static [CpuSlot]) {
    SLOTS.set(slots);
}

// SAFETY: each CPU has a number of its own below `CPUS`, code stays on its CPU, interrupts are taken only where they are
// on, and each CPU number has its own slot of the array that the run has set.
unsafe impl<const CPUS: usize> Platform for TimedPlatform<CPUS> {
    const CPUS: usize = CPUS;

    fn current_cpu() -> usize {
        with(|m| m.current)
    }

    fn pin() {
        with(|m| m.me().pins += 1);
    }

    fn unpin() {
        with(|m| m.me().pins -= 1);
    }

    fn irq_save() -> usize {
        point();
        with(|m| usize::from(core::mem::replace(&mut m.me().interrupts_on, false)))
    }

    fn irq_restore(state: usize) {
        with(|m| m.me().interrupts_on = state != 0);
        take_interrupt();
    }

    fn slot(cpu: usize) -> &'static CpuSlot {
        &SLOTS.get()[cpu]
    }

    fn relax() {
        relax();
    }
}

// SAFETY: the interrupt arrives after its delivery time and is taken as soon as interrupts are on.
unsafe impl<const CPUS: usize> IpiPlatform for TimedPlatform<CPUS> {
    fn send_flush_ipi(targets: Cpus<'_>) {
        point();
        with(|m| {
            for target in targets.iter() {
                m.spend(m.costs.ipi_send);
                m.interrupt(target);
            }
        });
    }
}
