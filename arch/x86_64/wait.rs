//! The initiator's second half: wait until each target is done.

use core::cell::Cell;

use super::{Courier, Instructions, Tlb};
use crate::{
    atomic::Ordering::Acquire,
    coverage::{Branch, took},
    cpus::CpuSet,
    flusher::Scope,
    platform::{IpiPlatform, Patience},
    slot::Loaded,
    variant::{Broken, broken},
};

/// Whom a flush must reach.
#[derive(Clone, Debug)]
pub struct Reach<const W: usize> {
    /// CPUs to tell and to wait for.
    pub(super) targets: CpuSet<W>,
    /// Lazy CPUs are no exception.
    pub(super) everyone: bool,
    /// It is for the kernel's mappings.
    pub(super) kernel: bool,
    /// Something was broadcast that this CPU has not yet waited for.
    pub(super) broadcast: Cell<bool>,
    /// For a courier that carries: no range will do.
    pub(super) whole: bool,
}

impl<const W: usize> Default for Reach<W> {
    fn default() -> Self {
        Self {
            targets: CpuSet::EMPTY,
            everyone: false,
            kernel: false,
            broadcast: Cell::new(false),
            whole: false,
        }
    }
}

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    #[inline(always)]
    pub(super) fn wait_for(&self, scope: Scope<'_, W>, generation: u64, reach: &Reach<W>) {
        if broken(Broken::NoWait) || reach.targets.is_empty() {
            return;
        }
        match scope {
            Scope::Space(space) => {
                self.wait_for_each(reach.targets, space.id, generation, reach.everyone);
            }
            Scope::Kernel => reach.targets.for_each(|cpu| {
                self.wait_until(cpu, || Self::has_reached_kernel(cpu, generation));
            }),
        }
    }

    /// Calls nothing but what is the last thing it does, so that it needs no stack frame.
    #[inline(never)]
    fn wait_for_each(&self, mut targets: CpuSet<W>, id: u64, generation: u64, everyone: bool) {
        let mut turns = 0;
        while let Some(cpu) = targets.first() {
            if Self::has_reached(cpu, id, generation, everyone) {
                targets.take_first();
                continue;
            }
            turns += 1;
            if Self::is_asked() || turns == Self::FEW_TURNS {
                return self.wait_and_serve(targets, id, generation, everyone);
            }
            P::relax();
        }
    }

    /// After so many turns of a waiting loop the number no longer matters.
    const FEW_TURNS: u64 = if cfg!(any(loom, feature = "_sim")) {
        1
    } else {
        1 << 12
    };

    #[inline(never)]
    fn wait_and_serve(&self, targets: CpuSet<W>, id: u64, generation: u64, everyone: bool) {
        targets.for_each(|cpu| {
            self.wait_until(cpu, || Self::has_reached(cpu, id, generation, everyone));
        });
    }

    #[inline(always)]
    fn wait_until(&self, cpu: usize, done: impl Fn() -> bool) {
        let mut patience = Patience::default();
        while !done() {
            // Two initiators with interrupts off wait for each other: each must serve (invariant 15).
            if self.serve_pending() {
                took(Branch::ServedWhileWaiting);
            } else {
                patience.turn::<P>(cpu);
            }
        }
    }

    /// Whether `cpu` can no longer use an entry of the space `id` older than `generation`: it has flushed, or has
    /// another space or none loaded, or is lazy and compares generations before it uses the space again.
    ///
    /// `loaded` is read first. If the CPU leaves the space between the two reads, the generation that is seen is that
    /// of another space; but then it has left, and compares generations when it comes back.
    #[inline(always)]
    pub(super) fn has_reached(cpu: usize, id: u64, generation: u64, everyone: bool) -> bool {
        let seen = &P::slot(cpu).seen;
        let loaded = Loaded(seen.loaded.load(Acquire));
        let uses = loaded == Loaded::used(id);
        if !uses && loaded == Loaded::SWITCHING {
            return broken(Broken::SwitchingDone);
        }
        let has = uses || (everyone && loaded == Loaded::lazy(id));
        !has || seen.generation.load(Acquire) >= generation
    }

    #[inline]
    fn has_reached_kernel(cpu: usize, generation: u64) -> bool {
        let seen = &P::slot(cpu).seen;
        // A CPU that went offline meanwhile flushes everything before it comes back.
        seen.loaded.load(Acquire) == Loaded::OFFLINE.0
            || seen.kernel_generation.load(Acquire) >= generation
    }
}
