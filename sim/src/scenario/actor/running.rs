//! What a CPU runs: online and offline, switches and lazy periods.

use std::rc::Rc;

use shootdown::{OnlineError, Platform, aarch64::Instructions};

use super::{Actor, space_of};
use crate::{
    machine::{arm::Arm, common::COMMON, current::with, scheduler::point},
    scenario::{backend::Backend, owner::Owner},
};

impl<F: Backend<W>, const W: usize> Actor<'_, F, W> {
    fn uses(&self, space: Option<u8>) {
        with(|m| m.cpus[self.index].uses = space);
    }

    /// Comes online.
    pub(crate) fn online(&mut self) {
        with(|m| m.cpus[self.index].listens = true);
        let mut came = self.flusher().online();
        if let Err(OnlineError::SharedTlb { .. }) = came {
            with(|m| m.tally.refused += 1);
            // SAFETY: only CnP changes, which says what other CPUs may use.
            unsafe { Arm::write_ttbr1(Arm::read_ttbr1() & !COMMON) };
            Arm::isb();
            came = self.flusher().online();
        }
        match came {
            Ok(()) => with(|m| {
                m.cpus[self.index].exempt = false;
                m.oracle_judges_presence(self.index);
            }),
            Err(error) => with(|m| m.fail(format!("online: {error}"))),
        }
    }

    /// Goes offline and comes back.
    pub(crate) fn offline_online(&mut self) {
        self.uses(None);
        with(|m| m.cpus[self.index].exempt = true);
        self.flusher().offline();
        with(|m| m.cpus[self.index].listens = false);
        self.forget();
        point();
        point();
        self.online();
    }

    fn forget(&mut self) {
        self.space = None;
        self.lazy.clear();
        self.abandoned = false;
    }

    pub(crate) fn switch(&mut self, space: u8, masked: bool) {
        let Some(owner) = self.begin(space) else {
            return;
        };
        let state = masked.then(F::Platform::irq_save);
        F::Platform::pin();
        self.uses(None);
        // SAFETY: no code of the simulated machine is translated; spaces live until the run is over.
        owner.at_ease(|| unsafe { self.flusher().switch(space_of(&owner)) });
        self.use_it(&owner);
        F::Platform::unpin();
        self.forget();
        self.space = Some(Rc::clone(&owner));
        if let Some(state) = state {
            F::Platform::irq_restore(state);
        }
        self.end(&owner);
    }

    /// User code on this CPU may run from now on.
    fn use_it(&self, owner: &Owner<W>) {
        with(|m| {
            if owner.retired.get() {
                m.fail(format!(
                    "space {} was loaded though it has retired",
                    owner.scope
                ));
            }
            m.judge_readiness(self.index);
        });
        self.uses(Some(owner.scope));
    }

    pub(crate) fn unload(&mut self) {
        self.uses(None);
        // SAFETY: no code of the simulated machine is translated.
        unsafe { self.flusher().unload() };
        self.forget();
    }

    pub(crate) fn lazy_enter(&mut self) {
        if self.lazy.len() < 3 {
            self.uses(None);
            self.lazy.push(self.flusher().lazy_enter());
        }
    }

    pub(crate) fn lazy_leave(&mut self) {
        let Some(outer) = self.lazy.pop() else { return };
        let Some(owner) = self
            .space
            .clone()
            .filter(|owner| !self.abandoned && !owner.retired.get())
        else {
            return;
        };
        if !owner.begin() {
            self.lazy.push(outer);
            return;
        }
        F::Platform::pin();
        // SAFETY: no code of the simulated machine is translated; spaces live until the run is over.
        owner.at_ease(|| unsafe { self.flusher().lazy_leave(outer, space_of(&owner)) });
        F::Platform::unpin();
        if self.lazy.is_empty() {
            self.use_it(&owner);
        }
        self.end(&owner);
    }

    pub(crate) fn abandon(&mut self) {
        self.abandoned |= !self.lazy.is_empty();
    }

    /// The space that user code on this CPU runs in.
    pub(super) fn used(&self) -> Option<Rc<Owner<W>>> {
        self.space
            .clone()
            .filter(|_| self.lazy.is_empty() && with(|m| m.cpus[self.index].uses.is_some()))
    }
}
