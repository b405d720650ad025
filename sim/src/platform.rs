//! The kernel's side of the flusher on the simulated machine.

use std::cell::Cell;

use shootdown::{CpuSlot, Cpus, IpiPlatform, Platform};

use crate::machine::{
    current::with,
    interrupts,
    scheduler::{point, relax},
};

thread_local! {
    static SLOTS: Cell<&'static [CpuSlot]> = const { Cell::new(&[]) };
}

/// The platform of a simulated machine with CPU numbers below `CPUS`.
#[derive(Debug)]
pub struct SimPlatform<const CPUS: usize>;

/// Makes `slots` this thread's.
pub(crate) fn set_slots(slots: &'static [CpuSlot]) {
    SLOTS.set(slots);
}

// SAFETY: each simulated CPU has a number of its own below `CPUS`, code stays on its CPU, interrupts are taken only
// where they are on, and each CPU number has its own slot of the array that the run has set.
unsafe impl<const CPUS: usize> Platform for SimPlatform<CPUS> {
    const CPUS: usize = CPUS;

    fn current_cpu() -> usize {
        with(|m| m.cpus[m.acting()].number)
    }

    fn pin() {
        with(|m| m.cpus[m.current].pins += 1);
    }

    fn unpin() {
        with(|m| {
            let cpu = m.current;
            match m.cpus[cpu].pins.checked_sub(1) {
                Some(pins) => m.cpus[cpu].pins = pins,
                None => m.fail(String::from("unpin without pin")),
            }
        });
    }

    fn irq_save() -> usize {
        point();
        with(|m| {
            usize::from(core::mem::replace(
                &mut m.cpus[m.current].interrupts_on,
                false,
            ))
        })
    }

    fn irq_restore(state: usize) {
        with(|m| m.cpus[m.current].interrupts_on = state != 0);
        interrupts::take();
    }

    fn slot(cpu: usize) -> &'static CpuSlot {
        &SLOTS.get()[cpu]
    }

    fn relax() {
        relax();
    }
}

// SAFETY: an interrupt that was sent after a publication arrives sooner or later and is then taken once interrupts are
// on. One sent without may be lost, which is what hardware may do with stores that follow.
unsafe impl<const CPUS: usize> IpiPlatform for SimPlatform<CPUS> {
    fn send_flush_ipi(targets: Cpus<'_>) {
        point();
        with(|m| {
            let unpublished = !m.cpus[m.current].published;
            if m.cpus[m.current].interrupts_on {
                m.fail(String::from(
                    "interrupts are on while the flush interrupt is sent",
                ));
            }
            for number in targets.iter() {
                match m.cpus.iter().position(|cpu| cpu.number == number) {
                    Some(target) if target != m.current => m.send_interrupt(target, unpublished),
                    _ => m.fail(format!(
                        "the flush interrupt is sent to cpu{number}, which is absent or the sender"
                    )),
                }
            }
        });
    }
}
