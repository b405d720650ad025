//! The end of a space.

use super::{Courier, Instructions, Tlb, courier, trim_mail, wait::Reach};
use crate::{
    atomic::Ordering::Acquire,
    coverage::{Branch, took},
    cpus::CpuSet,
    error::RetireError,
    platform::{IpiPlatform, IrqsOff, Patience, Pin},
    slot::Loaded,
    space::Space,
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    pub(super) fn retire_space(&self, space: &Space<W>) -> Result<(), RetireError<W>> {
        let _pin = Pin::<P>::new();
        let _ = self.my_slot("retire");
        // From here on a switch to the space panics. One that read the generation before is seen as SWITCHING by
        // the look at `loaded` below: the same pair of barriers as in a flush.
        if !space.domain.retire() {
            return Err(RetireError::AlreadyRetired);
        }
        I::barrier_after_rmw();
        let running = self.running(space);
        if !running.is_empty() {
            took(Branch::RetireRefused);
            space.domain.revive();
            return Err(RetireError::Running(running));
        }
        let broadcast = self.courier.broadcast();
        if broken(Broken::PcidReleasedEarly) {
            broadcast.inspect(|broadcast| self.release_pcid(broadcast, space));
        }
        self.unload_lazy(space);
        // No CPU has its PCID loaded any more.
        broadcast.inspect(|broadcast| self.release_pcid(broadcast, space));
        if !broken(Broken::RetireTrimKept) {
            self.withdraw_trims(space);
        }
        space.cpus.clear();
        Ok(())
    }

    /// The CPUs that use the space. Waits for those that are between two spaces.
    fn running(&self, space: &Space<W>) -> CpuSet<W> {
        let mut running = CpuSet::EMPTY;
        space.cpus.for_each(|cpu| {
            let mut patience = Patience::default();
            let loaded = loop {
                let loaded = Loaded(P::slot(cpu).seen.loaded.load(Acquire));
                if loaded != Loaded::SWITCHING {
                    break loaded;
                }
                if !self.serve_pending() {
                    patience.turn::<P>(cpu);
                }
            };
            if loaded == Loaded::used(space.id) {
                running.add(cpu);
            }
        });
        running
    }

    /// Makes each CPU that is lazy in the space leave it. It does so by itself when it serves.
    ///
    /// One that is between two spaces may be on its way out, with the old root still in CR3, or may come back lazy if it
    /// was refused: it is told and waited for as well (invariant 7).
    fn unload_lazy(&self, space: &Space<W>) {
        if broken(Broken::RetireLazyKept) {
            return;
        }
        let lazy = Loaded::lazy(space.id);
        let may_be_in = |cpu: usize| {
            let loaded = Loaded(P::slot(cpu).seen.loaded.load(Acquire));
            loaded == lazy || (loaded == Loaded::SWITCHING && !broken(Broken::RetireSwitchingGone))
        };
        let mut reach = Reach::<W>::default();
        {
            let _irqs = IrqsOff::<P>::new();
            let (my, me) = (self.my_slot("retire"), P::current_cpu());
            space.cpus.for_each(|cpu| {
                if cpu != me && may_be_in(cpu) {
                    took(Branch::RetireUnloaded);
                    reach.targets.add(cpu);
                }
            });
            courier::interrupt::<P, I, W>(&reach.targets, false, my);
            self.catch_up_with_space(my);
        }
        for cpu in reach.targets.iter() {
            let mut patience = Patience::default();
            while may_be_in(cpu) {
                if !self.serve_pending() {
                    patience.turn::<P>(cpu);
                }
            }
        }
    }

    /// Takes back trim requests, which hold the space's address, and waits for CPUs that are answering one.
    ///
    /// All mailboxes are searched, not only those of CPUs in the mask: a request may be posted after its CPU has answered an
    /// earlier one and left the mask, and an idle CPU might never look at it.
    fn withdraw_trims(&self, space: &Space<W>) {
        let mut patience = Patience::default();
        while space.trims.load(Acquire) != 0 {
            for cpu in 0..P::CPUS {
                if trim_mail::retract(P::slot(cpu), space) {
                    took(Branch::RetireStoleTrim);
                }
            }
            if !self.serve_pending() {
                patience.turn::<P>(P::current_cpu());
            }
        }
    }
}
