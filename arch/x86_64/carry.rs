//! Between the choice of targets and the interrupts: what the courier reaches by itself.

use super::{Courier, ErrandScope, Instructions, Tlb, wait::Reach};
use crate::{
    atomic::Ordering::Release,
    platform::IpiPlatform,
    request::Request,
    slot::CpuSlot,
    variant::{Broken, broken},
};

impl<const W: usize> Reach<W> {
    /// Adds a request to the errand; `whole`: everything is dropped, whatever range was asked for.
    pub(super) fn note(
        &mut self,
        scope: ErrandScope,
        request: &Request,
        whole: bool,
        generation: u64,
    ) {
        let range = request.span().filter(|_| !whole).copied();
        self.errand.add(scope, range, request.flags());
        #[cfg(any(loom, feature = "_sim"))]
        {
            self.errand.generation = generation;
        }
        let _ = generation;
    }
}

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// Lets the courier take out of the targets whom it reaches without an interrupt.
    ///
    /// Their generations stay as they are: the CPU has dropped what this errand names, but perhaps not what another
    /// initiator, whose generation is the one before, is still about to ask of it (invariant 3).
    #[inline]
    pub(super) fn carry(&self, my: &CpuSlot, reach: &mut Reach<W>) {
        let before = broken(Broken::ElidedAdvances).then_some(reach.targets);
        let carried = self
            .courier
            .carry(P::current_cpu(), &reach.errand, &mut reach.targets);
        my.counters.elided_by_host().add(carried.elided);
        my.counters.host_requests().add(carried.requests);
        my.mail.host_refusals.add(carried.refusals);
        if let Some(before) = before {
            for cpu in before.iter().filter(|cpu| !reach.targets.contains(*cpu)) {
                self.advance(cpu, reach);
            }
        }
    }

    /// For the broken variant.
    fn advance(&self, cpu: usize, reach: &Reach<W>) {
        #[cfg(any(loom, feature = "_sim"))]
        {
            let seen = &P::slot(cpu).seen;
            let generation = match reach.errand.scope() {
                ErrandScope::Kernel => &seen.kernel_generation,
                _ => &seen.generation,
            };
            generation.store(reach.errand.generation, Release);
        }
        let _ = (cpu, reach, Release);
    }
}
