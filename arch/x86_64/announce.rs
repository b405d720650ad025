//! The initiator's first half: make a change known, choose the targets, tell them.

use super::{Courier, Errand, Instructions, Tlb, courier, payload, trim_mail, wait::Reach};
use crate::{
    atomic::Ordering::{Acquire, Relaxed},
    coverage::{Branch, took},
    domain::CatchUp,
    flusher::Scope,
    platform::IpiPlatform,
    request::Request,
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// Announces one request and tells its targets.
    #[inline(always)]
    pub(super) fn start_from(
        &self,
        my: &CpuSlot,
        scope: Scope<'_, W>,
        request: &Request,
        reach: &mut Reach<W>,
    ) -> u64 {
        match scope {
            Scope::Space(space) => {
                if let Some(generation) = self.announce_settled(my, space, request, reach) {
                    my.counters.remote.add(1);
                    return generation;
                }
                let payload = self.count(my, request);
                let generation =
                    self.announce_to_space(my, space, payload, request, reach, Alone::IsServed);
                self.dispatch_to(
                    my,
                    reach,
                    |reach| Errand::of_one(scope, request, reach.whole, generation),
                    |_| self.flush_own_space(my, space, payload, generation),
                );
                generation
            }
            Scope::Kernel => {
                let generation = self.announce_to_all(my, request, reach);
                self.dispatch_to(
                    my,
                    reach,
                    |reach| Errand::of_one(scope, request, reach.whole, generation),
                    |reach| self.flush_own(my, reach),
                );
                generation
            }
        }
    }

    #[inline]
    pub(super) fn announce_to(
        &self,
        my: &CpuSlot,
        scope: Scope<'_, W>,
        request: &Request,
        reach: &mut Reach<W>,
    ) -> u64 {
        match scope {
            Scope::Space(space) => self
                .announce_settled(my, space, request, reach)
                .unwrap_or_else(|| {
                    let payload = self.count(my, request);
                    self.announce_to_space(my, space, payload, request, reach, Alone::ReadsRing)
                }),
            Scope::Kernel => self.announce_to_all(my, request, reach),
        }
    }

    /// Broadcasts a request for a space that needs no more than that.
    #[inline(always)]
    fn announce_settled(
        &self,
        my: &CpuSlot,
        space: &Space<W>,
        request: &Request,
        reach: &Reach<W>,
    ) -> Option<u64> {
        let broadcast = self.courier.broadcast()?;
        let generation = self.flush_settled(broadcast, my, space, request, reach)?;
        my.counters.flushes.add(1);
        if let Some(range) = request.span() {
            my.counters.pages.add(range.pages());
        }
        Some(generation)
    }

    /// Counts a request for a space, and gives its range as a payload, or `None` if everything goes.
    #[inline(always)]
    fn count(&self, my: &CpuSlot, request: &Request) -> Option<u64> {
        my.counters.flushes.add(1);
        if let Some(range) = request.span()
            && let Some(page) = payload::one_page(range)
            && self.goes_by_page(request)
        {
            my.counters.pages.add(1);
            return Some(page);
        }
        self.count_many(my, request)
    }

    #[inline(never)]
    fn count_many(&self, my: &CpuSlot, request: &Request) -> Option<u64> {
        let payload = request.span().and_then(|range| {
            my.counters.pages.add(range.pages());
            self.goes_by_page(request)
                .then(|| payload::encode(range, self.settings.mode().ceiling()))
                .flatten()
        });
        if payload.is_none() {
            my.counters.full.add(1);
        }
        payload
    }

    /// Whether INVLPG of its pages drops all that a request for a space names.
    #[inline(always)]
    fn goes_by_page(&self, request: &Request) -> bool {
        !request.frees_tables() || !self.keeps_unrelated_tables()
    }

    /// Targets are chosen after a full barrier, which pairs with the one in `switch` (invariants 1 and 2):
    ///
    /// ```text
    /// initiator                          CPU that loads the space
    /// clear the entry                    loaded := SWITCHING, mask bit set
    /// generation := g                    full barrier
    /// full barrier                       read the generation
    /// read the mask, read loaded         load CR3, walk the tables
    /// ```
    ///
    /// Without either barrier both may read the old value: the initiator skips a CPU that goes on to use the old entry.
    #[inline(always)]
    fn announce_to_space(
        &self,
        my: &CpuSlot,
        space: &Space<W>,
        payload: Option<u64>,
        request: &Request,
        reach: &mut Reach<W>,
        alone: Alone,
    ) -> u64 {
        let Some(generation) = space.domain.advance(I::barrier_after_rmw) else {
            retired(space.id());
        };
        if C::CARRIES {
            reach.whole |= payload.is_none();
        }
        // Freed tables may be walked speculatively by a CPU that merely has the space loaded (invariant 6).
        let everyone = request.reaches_lazy() && !broken(Broken::LazySkippedFreed);
        reach.everyone |= everyone;
        let mut others = space.cpus.snapshot();
        others.take_out(P::current_cpu());
        if others.is_empty() && matches!(alone, Alone::IsServed) {
            self.broadcast_too(my, space, request, reach);
            return generation;
        }
        space.domain.publish(generation, payload);
        let used = Loaded::used(space.id);
        let mut targets = others;
        let mut trim = None;
        others.for_each(|cpu| {
            let loaded = Loaded(P::slot(cpu).seen.loaded.load(Acquire));
            if loaded == used {
                took(Branch::TargetLoaded);
            } else if !self.must_reach(my, space, cpu, loaded, everyone, &mut trim) {
                targets.take_out(cpu);
            }
        });
        reach.targets.add_all(&targets);
        self.broadcast_too(my, space, request, reach);
        generation
    }

    /// Broadcasts, once CPUs were looked at, what is in reach of a global PCID only.
    #[inline(always)]
    fn broadcast_too(&self, my: &CpuSlot, space: &Space<W>, request: &Request, reach: &Reach<W>) {
        if let Some(broadcast) = self.courier.broadcast() {
            self.flush_in_transition(broadcast, my, space, request, reach);
        }
    }

    /// Whether a flush of `space` must reach a CPU in its mask that does not use it.
    #[cold]
    #[inline(never)]
    fn must_reach(
        &self,
        my: &CpuSlot,
        space: &Space<W>,
        cpu: usize,
        loaded: Loaded,
        everyone: bool,
        trim: &mut Option<bool>,
    ) -> bool {
        if loaded == Loaded::SWITCHING {
            // From or to this space, who knows: the interrupt waits until it has decided (invariant 7).
            took(Branch::TargetSwitching);
            return !broken(Broken::SwitchingSkipped);
        }
        if loaded == Loaded::lazy(space.id) {
            if everyone {
                took(Branch::TargetLazyReached);
            } else {
                took(Branch::TargetLazySkipped);
                my.counters.elided_lazy.add(1);
            }
            return everyone;
        }
        // It compares generations when it comes back.
        took(Branch::TargetAway);
        my.counters.elided_away.add(1);
        let trim = *trim.get_or_insert_with(|| {
            let due = space.away.get() >= self.settings.mode().trim_after();
            if due {
                space.away.set(0);
            }
            due
        });
        space.away.add(1);
        if trim {
            trim_mail::post(P::slot(cpu), space);
        }
        false
    }

    /// Every online CPU has kernel mappings, whether idle, lazy or waiting (invariant 13).
    fn announce_to_all(&self, my: &CpuSlot, request: &Request, reach: &mut Reach<W>) -> u64 {
        let me = P::current_cpu();
        my.counters.flushes.add(1);
        if let Some(range) = request.span() {
            my.counters.pages.add(range.pages());
        }
        if let Some(broadcast) = self.courier.broadcast() {
            return self.flush_kernel_everywhere(broadcast, my, request, reach);
        }
        let mode = self.settings.mode();
        // INVLPG drops globals and the current PCID. Entries and tables of other PCIDs need everything dropped.
        let by_page = if request.frees_tables() {
            !mode.pcid() && !self.keeps_unrelated_tables()
        } else {
            !mode.pcid() || mode.kernel_global()
        };
        let payload = request
            .span()
            .filter(|_| by_page || broken(Broken::KernelOnePcid))
            .and_then(|range| payload::encode(range, mode.ceiling()));
        if payload.is_none() {
            my.counters.full.add(1);
        }
        let Some(generation) = self.kernel.announce(payload, I::barrier_after_rmw) else {
            unreachable!("the kernel does not retire");
        };
        if C::CARRIES {
            reach.whole |= payload.is_none();
        }
        reach.kernel = true;
        self.online.for_each(|cpu| {
            if cpu == me {
                return;
            }
            if broken(Broken::KernelSkipsIdle)
                && !Loaded(P::slot(cpu).seen.loaded.load(Acquire)).is_used()
            {
                return;
            }
            reach.targets.add(cpu);
        });
        generation
    }

    /// Tells the targets, and flushes the own TLB by `own`: the initiator is its own first target.
    #[inline(always)]
    pub(super) fn dispatch_to(
        &self,
        my: &CpuSlot,
        reach: &mut Reach<W>,
        errand: impl Fn(&Reach<W>) -> Errand,
        own: impl Fn(&Reach<W>),
    ) {
        if reach.targets.is_empty() {
            took(Branch::NoTarget);
            if reach.broadcast.get() {
                my.counters.remote.add(1);
            } else {
                my.counters.local.add(1);
            }
            own(reach);
            return;
        }
        my.counters.remote.add(1);
        if self.courier.is_concurrent() {
            self.tell(my, reach, errand);
            own(reach);
        } else {
            own(reach);
            self.tell(my, reach, errand);
        }
    }

    /// Tells the targets: by the courier's own means first, then by interrupt.
    #[inline(always)]
    fn tell(&self, my: &CpuSlot, reach: &mut Reach<W>, errand: impl Fn(&Reach<W>) -> Errand) {
        if C::CARRIES {
            self.carry(my, reach, &errand(reach));
        }
        courier::interrupt::<P, I, W>(&reach.targets, my);
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

    /// Flushes what this CPU alone has, after the one request that began `generation`.
    #[inline(always)]
    fn flush_own_space(
        &self,
        my: &CpuSlot,
        space: &Space<W>,
        payload: Option<u64>,
        generation: u64,
    ) {
        if broken(Broken::SkipLocal) {
            return;
        }
        // Interrupts are off: nothing was served since the generation began.
        let uses = Loaded(my.seen.loaded.load(Relaxed)) == Loaded::used(space.id);
        if !(uses && my.seen.generation.load(Relaxed) == generation - 1) {
            return self.catch_up_behind(my);
        }
        // The one change that this CPU lacks is at hand.
        let todo = payload.map_or(CatchUp::All, CatchUp::One);
        self.flush_space_to(my, space, todo, generation);
    }

    #[cold]
    #[inline(never)]
    fn catch_up_behind(&self, my: &CpuSlot) {
        self.catch_up_with_space(my);
    }
}

/// Where the initiator finds its own request if no other CPU has the space.
#[derive(Clone, Copy)]
enum Alone {
    /// It has it at hand, so the ring need not have it.
    IsServed,
    /// In the ring, later.
    ReadsRing,
}

#[cold]
#[inline(never)]
pub(super) fn retired(id: u64) -> ! {
    panic!("shootdown: space {id} is used after it has retired");
}
