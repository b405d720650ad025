//! Changes of page tables, with their flush.

use shootdown::Platform;

use super::{Actor, complete, give_back, inside};
use crate::{
    machine::{current::with, layout, oracle::Promise},
    scenario::{
        backend::Backend,
        edit::Edit,
        op::Manner,
        owner::{Found, Owner, store},
    },
};

impl<F: Backend<W>, const W: usize> Actor<'_, F, W> {
    /// Changes tables under their lock, then flushes.
    pub(crate) fn change(
        &self,
        owner: &Owner<W>,
        manner: Manner,
        change: impl FnOnce(&mut Edit<'_, W>),
    ) {
        let state = manner.masked.then(F::Platform::irq_save);
        self.lock(owner, manner.masked);
        let mut edit = Edit::new(owner, self.world.setup.kernel_global);
        change(&mut edit);
        let paging = self.flusher().paging();
        let outside = manner.outside && edit.makes.is_empty();
        if edit.is_empty() {
            owner.lock.unlock();
        } else {
            let foreign = owner.foreign(true);
            let (request, promise) = edit.request(paging, manner.all, foreign);
            if outside {
                owner.mark_plain(edit.changed, true);
                owner.lock.unlock();
            }
            let flush = with(|m| m.begin_flush(promise));
            owner.at_ease(|| {
                let pending = self.start(owner, request);
                inside(|| pending.wait());
                complete(flush);
            });
            if outside {
                owner.mark_plain(edit.changed, false);
            } else {
                self.make(&edit);
                owner.lock.unlock();
            }
            give_back(&edit.frees);
        }
        if let Some(state) = state {
            F::Platform::irq_restore(state);
        }
    }

    /// Stores the new entries of a break-before-make change.
    fn make(&self, edit: &Edit<'_, W>) {
        for (table, index, value) in &edit.makes {
            store(*table, *index, *value, Default::default());
        }
        if let Some(range) = edit
            .range(self.flusher().paging())
            .filter(|_| !edit.makes.is_empty())
        {
            self.flusher().mapped(&range);
        }
    }

    /// Maps a page. If its entry was cleared by someone whose flush is still to come, that is done first.
    pub(crate) fn map(&self, space: u8, page: u8, writable: bool) {
        let Some(owner) = self.begin(space) else {
            return;
        };
        self.map_in(&owner, page, writable);
        self.end(&owner);
    }

    pub(crate) fn map_in(&self, owner: &Owner<W>, page: u8, writable: bool) {
        self.lock(owner, false);
        if self.may_act_on(owner, page) {
            self.rely_on_cleared(owner, page);
            let mut edit = Edit::new(owner, self.world.setup.kernel_global);
            if edit.map(page, writable) {
                edit.include(page);
                if let Some(range) = edit.range(self.flusher().paging()) {
                    self.flusher().mapped(&range);
                }
            }
        }
        owner.lock.unlock();
    }

    /// Whether nobody's plain change of the page, or of the table it would get, is still to be flushed.
    fn may_act_on(&self, owner: &Owner<W>, page: u8) -> bool {
        owner.is_settled(page) && owner.is_region_settled(layout::region_of(page))
    }

    /// The page's entry may have been cleared by a gather that is not finished; then it is flushed here, before
    /// anything relies on it.
    fn rely_on_cleared(&self, owner: &Owner<W>, page: u8) {
        let found = owner.find(page);
        if !matches!(found, Found::NoTable | Found::Nothing) {
            return;
        }
        let Some(space) = &owner.space else { return };
        let promise = Promise {
            scope: owner.scope,
            pages: 1 << page,
            hard: false,
            tables: false,
        };
        if space.flush_pending() {
            let mut edit = Edit::new(owner, false);
            edit.include(page);
            if found == Found::NoTable {
                edit.frees_tables();
            }
            let (request, _) = edit.request(self.flusher().paging(), false, 0);
            let promise = Promise {
                hard: request.reaches_lazy(),
                tables: request.frees_tables(),
                ..promise
            };
            let flush = with(|m| m.begin_flush(promise));
            self.start(owner, request).wait();
            complete(flush);
        } else {
            complete(with(|m| m.begin_claim(promise)));
        }
    }
}
