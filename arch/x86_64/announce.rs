//! The initiator's first half: make a change known, and find whom it concerns.

use super::{Courier, Errand, Instructions, Tlb, payload::Payload, wait::Reach};
use crate::{
    atomic::Ordering::Acquire,
    coverage::{Branch, took},
    cpus::CpuSet,
    domain::Domain,
    flusher::Scope,
    paging::Stride,
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
            Scope::Space(space) if !self.interrupts_only() => {
                if let Some(generation) = self.announce_settled(my, space, request, reach) {
                    my.counters.remote.add(1);
                    return generation;
                }
                let generation = self.announce_to_space(my, space, request, reach);
                self.dispatch_to(my, reach, |reach| {
                    Errand::of_one(scope, request, reach.whole, generation)
                });
                generation
            }
            Scope::Space(space) => {
                let payload = self.count(my, request);
                let before = space.domain.advance(I::barrier_after_rmw);
                let everyone = Self::reaches_everyone(request);
                let cpus = Self::cpus(space);
                if cpus.is_only(P::current_cpu, my.seen.bit.get())
                    && Self::lacks_nothing(my, space, before)
                {
                    // Nobody else looks for the payload: whoever loads the space now compares generations, and drops all
                    // of a space that it has old entries of. Not retired, or this CPU would lack that.
                    took(Branch::NoTarget);
                    my.counters.local.add(1);
                    self.flush_own_request(my, space, payload, before + 1);
                } else {
                    reach.targets = self.tell_others(space, payload, before, cpus, everyone);
                    reach.everyone = everyone;
                }
                before + 1
            }
            Scope::Kernel => {
                let generation = self.announce_to_all(my, request, reach);
                self.dispatch_to(my, reach, |reach| {
                    Errand::of_one(scope, request, reach.whole, generation)
                });
                generation
            }
        }
    }

    /// Whether interrupts are all that the courier knows, as most do: then a flush takes the shortest way.
    #[inline(always)]
    fn interrupts_only(&self) -> bool {
        !C::CARRIES && self.courier.broadcast().is_none()
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
                .unwrap_or_else(|| self.announce_to_space(my, space, request, reach)),
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

    /// Makes a request for a space known, and adds its targets to `reach`.
    #[inline]
    fn announce_to_space(
        &self,
        my: &CpuSlot,
        space: &Space<W>,
        request: &Request,
        reach: &mut Reach<W>,
    ) -> u64 {
        let payload = self.count(my, request);
        let before = space.domain.advance(I::barrier_after_rmw);
        let generation = Self::live(space, before) + 1;
        space.domain.publish(generation, payload.some());
        let everyone = Self::reaches_everyone(request);
        let mut others = Self::cpus(space);
        others.take_out(P::current_cpu());
        let targets = self.targets_among(my, space, others, everyone, |_, _| ());
        reach.targets.add_all(&targets);
        reach.everyone |= everyone;
        if C::CARRIES {
            reach.whole |= payload.is_all();
        }
        // What is in reach of a global PCID only, once CPUs were looked at.
        if let Some(broadcast) = self.courier.broadcast() {
            self.flush_in_transition(broadcast, my, space, request, reach);
        }
        generation
    }

    /// Counts a request for a space, and gives its range as a payload.
    #[inline(always)]
    fn count(&self, my: &CpuSlot, request: &Request) -> Payload {
        my.counters.flushes.add(1);
        if let Some(range) = request.span()
            && let Some(page) = Payload::one_page(range)
            && self.goes_by_page(request)
        {
            my.counters.pages.add(1);
            return page;
        }
        let Some(range) = request.span() else {
            my.counters.full.add(1);
            return Payload::ALL;
        };
        if !self.goes_by_page(request) {
            my.counters.pages.add(range.pages());
            my.counters.full.add(1);
            return Payload::ALL;
        }
        self.count_range(my, range.start(), range.pages(), range.stride())
    }

    // Scalars by value: what is out of the way then costs the frequent case nothing.
    #[inline(never)]
    fn count_range(&self, my: &CpuSlot, start: u64, pages: u64, stride: Stride) -> Payload {
        my.counters.pages.add(pages);
        let payload = Payload::of(start, pages, stride, self.settings.mode().ceiling());
        if payload.is_all() {
            my.counters.full.add(1);
        }
        payload
    }

    /// Whether INVLPG of its pages drops all that a request for a space names.
    #[inline(always)]
    fn goes_by_page(&self, request: &Request) -> bool {
        !request.frees_tables() || !self.keeps_unrelated_tables()
    }

    /// Freed tables may be walked speculatively by a CPU that merely has the space loaded (invariant 6).
    #[inline(always)]
    fn reaches_everyone(request: &Request) -> bool {
        request.reaches_lazy() && !broken(Broken::LazySkippedFreed)
    }

    /// The generation that [`advance`](crate::domain::Domain::advance) gave, of a space that has not retired.
    #[inline(always)]
    pub(super) fn live(space: &Space<W>, before: u64) -> u64 {
        if Domain::was_retired(before) {
            retired(space.id());
        }
        before
    }

    /// The CPUs in the space's mask: read after a full barrier, which pairs with the one in `switch` (invariants 1 and 2):
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
    fn cpus(space: &Space<W>) -> CpuSet<W> {
        space.cpus.snapshot()
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
            .map_or(Payload::ALL, |range| {
                Payload::of(range.start(), range.pages(), range.stride(), mode.ceiling())
            });
        if payload.is_all() {
            my.counters.full.add(1);
        }
        let Some(generation) = self.kernel.announce(payload.some(), I::barrier_after_rmw) else {
            unreachable!("the kernel does not retire");
        };
        if C::CARRIES {
            reach.whole |= payload.is_all();
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
}

#[cold]
#[inline(never)]
pub(super) fn retired(id: u64) -> ! {
    panic!("shootdown: space {id} is used after it has retired");
}
