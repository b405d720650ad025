//! A critical section whose waiters halt.

use std::rc::Rc;

use shootdown::{Platform, Range, Request, Stride};

use super::{Actor, Owner, complete, inside, space_of};
use crate::{
    machine::{
        current::with,
        hypervisor::halt,
        layout,
        oracle::Promise,
        scheduler::{point, relax},
    },
    scenario::{backend::Backend, edit::Edit},
};

/// What is done in a critical section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing that concerns a TLB, for so many steps.
    Steps(u8),
    /// A user access.
    Touch,
    /// A flush that need not reach waiting CPUs: the holder must not wait for others.
    Flush,
}

impl<F: Backend<W>, const W: usize> Actor<'_, F, W> {
    /// Takes the lock, works, and gives it back. While it waits, it may be interrupted by a handler that touches user
    /// memory.
    pub(crate) fn halting(&mut self, masked: bool, nested: bool, page: u8, work: Work) {
        let state = masked.then(F::Platform::irq_save);
        let lock = &self.world.halting;
        while !lock.try_lock() {
            self.wait_halted(masked, nested, page);
        }
        match work {
            Work::Steps(steps) => (0..steps).for_each(|_| point()),
            Work::Touch => self.touch(page, false, false),
            Work::Flush => self.flush_plainly(page),
        }
        lock.unlock();
        if let Some(state) = state {
            F::Platform::irq_restore(state);
        }
        inside(|| self.flusher().poll());
    }

    /// Waits, halted, until the lock was free once.
    fn wait_halted(&mut self, masked: bool, nested: bool, page: u8) {
        let state = F::Platform::irq_save();
        // The space that is used lives on while the CPU waits in it: a thread is in it.
        let used = self.used();
        if used.as_ref().is_some_and(|owner| !owner.begin()) {
            // It is about to retire: a kernel would not wait in it.
            F::Platform::irq_restore(state);
            inside(|| self.flusher().poll());
            return relax();
        }
        self.uses(None);
        let waiting = self.flusher().wait_enter();
        let mut nested = nested && used.is_some();
        let lock = &self.world.halting;
        loop {
            lock.wait(self.index);
            if lock.is_free() {
                break;
            }
            halt(!masked);
            inside(|| self.flusher().poll());
            if let Some(owner) = used.as_ref().filter(|_| core::mem::take(&mut nested)) {
                // An interrupt of a device: its handler uses the space, then lets the CPU wait again.
                // SAFETY: no code of the simulated machine is translated; spaces live until the run is over.
                unsafe { self.flusher().switch(space_of(owner)) };
                self.use_it(owner);
                self.touch(page, false, false);
                with(|m| m.tally.waits_interrupted += 1);
                self.uses(None);
                let _ = self.flusher().wait_enter();
            }
        }
        // SAFETY: as above; the space has not retired, since an operation on it is under way.
        unsafe { self.flusher().wait_leave(waiting) };
        if let Some(owner) = &used {
            self.use_it(owner);
        }
        F::Platform::irq_restore(state);
        if let Some(owner) = &used {
            self.end(owner);
        }
    }

    /// Flushes a page of the space that is used, or of the first one, without having changed it: what others change
    /// meanwhile, perhaps tables, is theirs to flush.
    fn flush_plainly(&self, page: u8) {
        let place = Rc::clone(&self.world.places[0].borrow());
        let owner = self.used().unwrap_or(place);
        if !owner.begin() {
            return;
        }
        let mut edit = Edit::new(&owner, false);
        edit.include(page);
        let (request, _) = edit.request(self.flusher().paging(), false, 0);
        self.flush_without_change(&owner, request);
        self.end(&owner);
    }

    fn flush_without_change(&self, owner: &Owner<W>, request: Request) {
        let promise = Promise {
            scope: owner.scope,
            pages: 0,
            hard: false,
            tables: false,
        };
        let flush = with(|m| m.begin_flush(promise));
        owner.at_ease(|| {
            let pending = self.start(owner, request);
            inside(|| pending.wait());
            complete(flush);
        });
    }

    /// Flushes a range of so many 2 MiB pages, of which nothing was changed: longer than some lists.
    pub(crate) fn flush_vast(&self, space: u8, pages: u16) {
        let Some(owner) = self.begin(space) else {
            return;
        };
        let paging = self.flusher().paging();
        let range = Range::new(
            paging,
            layout::region_address(0),
            u64::from(pages),
            Stride::Size2M,
        );
        if let Ok(range) = range {
            self.flush_without_change(&owner, Request::range(range));
        }
        self.end(&owner);
    }
}
