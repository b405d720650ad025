//! Between the choice of targets and the interrupts: what the courier reaches by itself.

use super::{Courier, Errand, ErrandScope, Instructions, Tlb, wait::Reach};
use crate::{
    atomic::Ordering::Release,
    platform::IpiPlatform,
    slot::CpuSlot,
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// Lets the courier take out of the targets whom it reaches without an interrupt.
    ///
    /// Their generations stay as they are: the CPU has dropped what this errand names, but perhaps not what another
    /// initiator, whose generation is the one before, is still about to ask of it (invariant 3).
    #[inline]
    pub(super) fn carry(&self, my: &CpuSlot, reach: &mut Reach<W>, errand: &Errand) {
        let before = broken(Broken::ElidedAdvances).then_some(reach.targets);
        let carried = self
            .courier
            .carry(P::current_cpu(), errand, &mut reach.targets);
        my.counters.elided_by_host().add(carried.elided);
        my.counters.host_requests().add(carried.requests);
        my.mail.host_refusals.add(carried.refusals);
        if let Some(before) = before {
            for cpu in before.iter().filter(|cpu| !reach.targets.contains(*cpu)) {
                self.advance(cpu, errand);
            }
        }
    }

    /// For the broken variant.
    fn advance(&self, cpu: usize, errand: &Errand) {
        let seen = &P::slot(cpu).seen;
        let generation = match errand.scope() {
            ErrandScope::Space { .. } => &seen.generation,
            ErrandScope::Kernel => &seen.kernel_generation,
            // A batch has several.
            ErrandScope::Spaces => return,
        };
        generation.store(errand.generation(), Release);
    }
}
