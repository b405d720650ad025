//! The initiator's first half: make a change known, choose the targets, tell them.

use super::{Courier, Instructions, Tlb, courier, payload, trim_mail, wait::Reach};
use crate::{
    atomic::Ordering::Acquire,
    coverage::{Branch, took},
    flusher::Scope,
    platform::IpiPlatform,
    request::Request,
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    #[inline]
    pub(super) fn announce_to(
        &self,
        my: &CpuSlot,
        me: usize,
        scope: Scope<'_, W>,
        request: &Request,
        reach: &mut Reach<W>,
    ) -> u64 {
        my.counters.flushes.add(1);
        if let Some(range) = request.span() {
            my.counters.pages.add(range.pages());
        }
        match scope {
            Scope::Space(space) => self.announce_to_space(my, me, space, request, reach),
            Scope::Kernel => self.announce_to_all(my, me, request, reach),
        }
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
    #[inline]
    fn announce_to_space(
        &self,
        my: &CpuSlot,
        me: usize,
        space: &Space<W>,
        request: &Request,
        reach: &mut Reach<W>,
    ) -> u64 {
        if let Some(broadcast) = self.courier.broadcast()
            && let Some(generation) = self.flush_settled(broadcast, my, space, request, reach)
        {
            return generation;
        }
        let mode = self.settings.mode();
        let payload = request
            .span()
            .filter(|_| !request.frees_tables() || !self.keeps_unrelated_tables())
            .and_then(|range| payload::encode(range, mode.ceiling()));
        if payload.is_none() {
            my.counters.full.add(1);
        }
        let Some(generation) = space.domain.announce(payload, I::barrier_after_rmw) else {
            retired(space.id());
        };
        // Freed tables may be walked speculatively by a CPU that merely has the space loaded (invariant 6).
        let everyone = request.reaches_lazy() && !broken(Broken::LazySkippedFreed);
        reach.everyone |= everyone;
        let used = Loaded::used(space.id);
        let trim = space.away.get() >= mode.trim_after();
        if trim {
            space.away.set(0);
        }
        space.cpus.for_each(|cpu| {
            if cpu == me {
                return;
            }
            let slot = P::slot(cpu);
            let loaded = Loaded(slot.seen.loaded.load(Acquire));
            if loaded == used {
                took(Branch::TargetLoaded);
                reach.targets.add(cpu);
            } else if loaded == Loaded::SWITCHING {
                // From or to this space, who knows: the interrupt waits until it has decided (invariant 7).
                if !broken(Broken::SwitchingSkipped) {
                    took(Branch::TargetSwitching);
                    reach.targets.add(cpu);
                }
            } else if loaded == used.as_lazy() {
                if everyone {
                    took(Branch::TargetLazyReached);
                    reach.targets.add(cpu);
                } else {
                    took(Branch::TargetLazySkipped);
                    my.counters.elided_lazy.add(1);
                }
            } else {
                // It compares generations when it comes back.
                took(Branch::TargetAway);
                my.counters.elided_away.add(1);
                space.away.add(1);
                if trim {
                    trim_mail::post(slot, space);
                }
            }
        });
        if let Some(broadcast) = self.courier.broadcast() {
            self.flush_in_transition(broadcast, my, space, request, reach);
        }
        generation
    }

    /// Every online CPU has kernel mappings, whether idle, lazy or waiting (invariant 13).
    fn announce_to_all(
        &self,
        my: &CpuSlot,
        me: usize,
        request: &Request,
        reach: &mut Reach<W>,
    ) -> u64 {
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

    #[inline]
    pub(super) fn dispatch_to(&self, my: &CpuSlot, reach: &mut Reach<W>) {
        let concurrent = self.courier.is_concurrent();
        if !concurrent {
            self.flush_own(my, reach);
        }
        if reach.targets.is_empty() {
            took(Branch::NoTarget);
            if reach.broadcast.get() {
                my.counters.remote.add(1);
            } else {
                my.counters.local.add(1);
            }
        } else {
            my.counters.remote.add(1);
            courier::interrupt::<P, I, W>(&reach.targets, my);
        }
        if concurrent {
            self.flush_own(my, reach);
        }
    }

    /// The initiator is its own first target.
    #[inline]
    fn flush_own(&self, my: &CpuSlot, reach: &Reach<W>) {
        if broken(Broken::SkipLocal) {
            return;
        }
        if reach.kernel {
            self.catch_up_with_kernel(my);
        }
        self.catch_up_with_space(my);
    }
}

#[cold]
#[inline(never)]
pub(super) fn retired(id: u64) -> ! {
    panic!("shootdown: space {id} is used after it has retired");
}
