//! The flush interrupt, which reaches whom nothing else does.

use crate::{
    atomic::Ordering::SeqCst,
    coverage::{Branch, took},
    cpus::CpuSet,
    platform::IpiPlatform,
    slot::{Asked, CpuSlot},
    variant::{Broken, broken},
    x86_64::Instructions,
};

/// The CPUs that are to be interrupted.
#[derive(Clone, Copy)]
pub(in crate::x86_64) struct Round<const W: usize> {
    send: CpuSet<W>,
    count: u64,
}

impl<const W: usize> Round<W> {
    /// All of `targets`, until [`ask`](Self::ask) finds that some need no interrupt.
    #[inline(always)]
    pub(in crate::x86_64) const fn of(targets: CpuSet<W>) -> Self {
        Self {
            send: targets,
            count: 0,
        }
    }

    /// Asks a CPU to serve. The request itself was announced before. `more`: for the kernel's mappings.
    #[inline(always)]
    pub(in crate::x86_64) fn ask(&mut self, slot: &CpuSlot, cpu: usize, more: bool, my: &CpuSlot) {
        // A full barrier on both sides: whoever finds the bit was before the target's own swap to 0, which is before the
        // target reads generations. So the target sees this request without another interrupt.
        let before = if more {
            slot.mail
                .pending
                .fetch_or(Asked::INTERRUPT | Asked::MORE, SeqCst)
        } else {
            slot.mail.pending.fetch_or(Asked::INTERRUPT, SeqCst)
        };
        if before & Asked::INTERRUPT == 0 {
            self.count += 1;
        } else {
            took(Branch::InterruptMerged);
            my.counters.elided_pending.add(1);
            self.send.take_out(cpu);
        }
    }

    /// Leaves out CPUs that are not targets.
    #[inline(always)]
    pub(in crate::x86_64) fn keep(&mut self, targets: &CpuSet<W>) {
        self.send.keep(targets);
    }

    /// Sends the interrupts.
    #[inline(always)]
    pub(in crate::x86_64) fn send<P: IpiPlatform, I: Instructions>(self, my: &CpuSlot) {
        if self.count != 0 {
            my.counters.ipis_sent.add(self.count);
            if !broken(Broken::NoPublish) {
                I::publish_before_ipi();
            }
            P::send_flush_ipi(self.send.view());
        }
    }
}

/// Asks each of `targets` to serve, and interrupts those that have no interrupt on its way already. `more`: for the
/// kernel's mappings.
pub(in crate::x86_64) fn interrupt<P: IpiPlatform, I: Instructions, const W: usize>(
    targets: &CpuSet<W>,
    more: bool,
    my: &CpuSlot,
) {
    let mut round = Round::of(*targets);
    targets.for_each(|cpu| round.ask(P::slot(cpu), cpu, more, my));
    round.send::<P, I>(my);
}
