//! Which CPUs a flush of a space must reach.

use super::{Courier, Instructions, Tlb, trim_mail};
use crate::{
    atomic::Ordering::Acquire,
    coverage::{Branch, took},
    cpus::CpuSet,
    platform::IpiPlatform,
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// Those of `others` that a flush must reach, each given to `each` with its slot.
    #[inline(always)]
    pub(super) fn targets_among(
        &self,
        my: &CpuSlot,
        space: &Space<W>,
        others: CpuSet<W>,
        everyone: bool,
        mut each: impl FnMut(&CpuSlot, usize),
    ) -> CpuSet<W> {
        let used = Loaded::used(space.id);
        let mut targets = others;
        let mut trim = None;
        others.for_each(|cpu| {
            let slot = P::slot(cpu);
            let loaded = Loaded(slot.seen.loaded.load(Acquire));
            if loaded == used {
                took(Branch::TargetLoaded);
            } else if !self.must_reach(my, space, cpu, loaded, everyone, &mut trim) {
                targets.take_out(cpu);
                return;
            }
            each(slot, cpu);
        });
        targets
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
}
