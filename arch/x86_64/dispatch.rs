//! The initiator's middle: tell the targets and flush the own TLB, in the courier's order.

use super::{
    Courier, Errand, Instructions, Tlb,
    courier::{self, Round},
    payload::Payload,
    wait::Reach,
};
use crate::{
    atomic::Ordering::Relaxed,
    coverage::{Branch, took},
    cpus::CpuSet,
    domain::CatchUp,
    platform::IpiPlatform,
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// The second half of a flush of a space that others have: finds targets, interrupts them, and flushes the own TLB.
    /// Its arguments fit registers.
    #[inline(never)]
    pub(super) fn tell_others(
        &self,
        space: &Space<W>,
        payload: Payload,
        before: u64,
        cpus: CpuSet<W>,
        everyone: bool,
    ) -> CpuSet<W> {
        let my = P::own_slot();
        let mut others = cpus;
        others.take_out(P::current_cpu());
        let generation = Self::live(space, before) + 1;
        space.domain.publish(generation, payload.some());
        let mut round = Round::of(others);
        let targets = self.targets_among(my, space, others, everyone, |slot, cpu| {
            round.ask(slot, cpu, false, my);
        });
        round.keep(&targets);
        if targets.is_empty() {
            took(Branch::NoTarget);
            my.counters.local.add(1);
        } else {
            my.counters.remote.add(1);
        }
        if self.courier.is_concurrent() {
            round.send::<P, I>(my);
        }
        if Self::lacks_nothing(my, space, before) {
            self.flush_own_request(my, space, payload, generation);
        } else {
            self.catch_up_behind(my);
        }
        if !self.courier.is_concurrent() {
            round.send::<P, I>(my);
        }
        targets
    }

    /// Tells the targets, and flushes the own TLB: the initiator is its own first target.
    #[inline]
    pub(super) fn dispatch_to(
        &self,
        my: &CpuSlot,
        reach: &mut Reach<W>,
        errand: impl FnOnce(&Reach<W>) -> Errand,
    ) {
        if reach.targets.is_empty() {
            took(Branch::NoTarget);
            if reach.broadcast.get() {
                my.counters.remote.add(1);
            } else {
                my.counters.local.add(1);
            }
            self.flush_own(my, reach);
            return;
        }
        my.counters.remote.add(1);
        if self.courier.is_concurrent() {
            self.tell(my, reach, errand);
            self.flush_own(my, reach);
        } else {
            self.flush_own(my, reach);
            self.tell(my, reach, errand);
        }
    }

    /// Tells the targets: by the courier's own means first, then by interrupt.
    #[inline]
    fn tell(&self, my: &CpuSlot, reach: &mut Reach<W>, errand: impl FnOnce(&Reach<W>) -> Errand) {
        if C::CARRIES {
            let errand = errand(reach);
            self.carry(my, reach, &errand);
        }
        courier::interrupt::<P, I, W>(&reach.targets, reach.kernel, my);
    }

    /// Flushes what this CPU alone has, after some requests.
    #[inline]
    pub(super) fn flush_own(&self, my: &CpuSlot, reach: &Reach<W>) {
        if broken(Broken::SkipLocal) {
            return;
        }
        if reach.kernel {
            self.catch_up_with_kernel(my);
        }
        self.catch_up_with_space(my);
    }

    /// Flushes what this CPU alone has: it lacks the request that began `generation`, and that is at hand.
    #[inline(always)]
    pub(super) fn flush_own_request(
        &self,
        my: &CpuSlot,
        space: &Space<W>,
        payload: Payload,
        generation: u64,
    ) {
        if broken(Broken::SkipLocal) {
            return;
        }
        // The frequent case first.
        if let Some(page) = payload.page() {
            self.flush_space_to(my, space, CatchUp::One(page), generation);
        } else {
            let todo = payload.some().map_or(CatchUp::All, CatchUp::One);
            self.flush_space_to(my, space, todo, generation);
        }
    }

    #[cold]
    #[inline(never)]
    fn catch_up_behind(&self, my: &CpuSlot) {
        if !broken(Broken::SkipLocal) {
            self.catch_up_with_space(my);
        }
    }

    /// Whether this CPU uses the space and has caught up with the generation `before` a request. Interrupts are off:
    /// nothing was served since the request began.
    #[inline(always)]
    pub(super) fn lacks_nothing(my: &CpuSlot, space: &Space<W>, before: u64) -> bool {
        Loaded(my.seen.loaded.load(Relaxed)) == Loaded::used(space.id)
            && my.seen.generation.load(Relaxed) == before
    }
}
