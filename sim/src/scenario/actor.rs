//! [`Actor`]: one CPU of the simulated kernel, and what it has loaded.

use std::rc::Rc;

use shootdown::{Outer, Pending, Platform, Request, RetireError, Space};

use super::{backend::Backend, edit::Edit, op::Manner, owner::Owner, world::World};
use crate::machine::{
    current::with,
    interrupts::user_access_ok,
    layout,
    oracle::{FlushId, Promise},
    scheduler::point,
    walk::{Access, Outcome},
};

/// One CPU of the simulated kernel.
pub(crate) struct Actor<'w, F: Backend<W>, const W: usize> {
    pub world: &'w World<F, W>,
    pub index: usize,
    /// The space that was switched to last.
    pub space: Option<Rc<Owner<W>>>,
    lazy: Vec<Outer>,
    /// It will not come back to the space that it is lazy in.
    abandoned: bool,
}

/// Waits for a flush to complete, and lets the oracle judge the moment.
pub(crate) fn complete(flush: FlushId) {
    let (promise, cpus) = with(|m| (m.end_flush(flush), m.cpus.len()));
    for cpu in 0..cpus {
        let may = user_access_ok(cpu);
        with(|m| m.judge_completion(cpu, &promise, may));
    }
}

/// Counts how deep this CPU is in the flusher, to see interrupts nest there.
pub(crate) fn inside<R>(act: impl FnOnce() -> R) -> R {
    with(|m| m.cpus[m.current].inside += 1);
    let result = act();
    with(|m| m.cpus[m.current].inside -= 1);
    result
}

impl<'w, F: Backend<W>, const W: usize> Actor<'w, F, W> {
    pub(crate) fn new(world: &'w World<F, W>, index: usize) -> Self {
        Self {
            world,
            index,
            space: None,
            lazy: Vec::new(),
            abandoned: false,
        }
    }

    pub(crate) fn flusher(&self) -> &'w F {
        &self.world.flusher
    }

    fn uses(&self, space: Option<u8>) {
        with(|m| m.cpus[self.index].uses = space);
    }

    /// Comes online.
    pub(crate) fn online(&mut self) {
        with(|m| m.cpus[self.index].listens = true);
        match self.flusher().online() {
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

    /// Begins an operation on a space, unless it is about to retire.
    pub(crate) fn begin(&self, space: u8) -> Option<Rc<Owner<W>>> {
        let owner = Rc::clone(&self.world.places.get(usize::from(space))?.borrow());
        owner.begin().then_some(owner)
    }

    /// Ends an operation. The last one on a space that has retired meanwhile gives back what the space had.
    pub(crate) fn end(&self, owner: &Owner<W>) {
        if owner.end() {
            self.bury(owner);
        }
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
    fn used(&self) -> Option<Rc<Owner<W>>> {
        self.space
            .clone()
            .filter(|_| self.lazy.is_empty() && with(|m| m.cpus[self.index].uses.is_some()))
    }

    /// A user access, with the faults it takes.
    pub(crate) fn touch(&self, page: u8, write: bool, demand: bool) {
        let Some(owner) = self.used() else { return };
        let access = if write { Access::Write } else { Access::Read };
        point();
        let outcome = with(|m| m.access(self.index, page, access, Some(owner.scope)));
        match outcome {
            Outcome::Done => {}
            Outcome::Fault if demand => {
                let places = &self.world.places;
                let space = places
                    .iter()
                    .position(|place| place.borrow().scope == owner.scope);
                if let Some(space) = space {
                    self.map(space as u8, page, true);
                }
            }
            Outcome::Fault => {}
            Outcome::ReadOnly => {
                // Spurious if the table permits it by now.
                self.flush_local(page);
            }
        }
    }

    /// Drops what this CPU has cached of a page; nothing older may remain.
    pub(crate) fn flush_local(&self, page: u8) {
        let before = with(|m| m.tick());
        let address = layout::address(page);
        // The tables are looked at first: another CPU's change must not come in between.
        self.flusher().flush_local(address);
        with(|m| {
            let tag = m.context(self.index, address).tag;
            let left = m.cpus[self.index].tlb.translation(tag, address);
            if let Some(entry) = left.filter(|entry| entry.oldest() <= before) {
                let number = m.cpus[self.index].number;
                let entry = entry.show();
                m.fail(format!("cpu{number} still has {entry} after flush_local"));
            }
        });
    }

    pub(crate) fn kernel_touch(&self, page: u8, write: bool) {
        let access = if write { Access::Write } else { Access::Read };
        point();
        with(|m| m.access(self.index, page, access, None));
    }

    /// Polls as a spin lock does that was taken with interrupts off.
    pub(crate) fn poll_masked(&self, turns: u8) {
        let state = F::Platform::irq_save();
        for _ in 0..turns {
            inside(|| self.flusher().poll());
            point();
        }
        F::Platform::irq_restore(state);
        inside(|| self.flusher().poll());
    }

    /// Takes an owner's lock; polls while it spins where interrupts are off.
    pub(crate) fn lock(&self, owner: &Owner<W>, masked: bool) {
        owner.lock.lock(|| {
            if masked {
                inside(|| self.flusher().poll());
            }
        });
    }

    pub(crate) fn start<'a>(&'a self, owner: &'a Owner<W>, request: Request) -> Pending<'a, F, W> {
        inside(|| match &owner.space {
            Some(space) => self.flusher().flush(space, request),
            None => self.flusher().flush_kernel(request),
        })
    }

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
            super::owner::store(*table, *index, *value, Default::default());
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
        use super::owner::Found;
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

    /// A device uses a space's tables from now on.
    pub(crate) fn share_with_device(&self, space: u8) {
        let Some(owner) = self.begin(space) else {
            return;
        };
        match self.flusher().share_with_device(space_of(&owner)) {
            Ok(()) => with(|m| {
                // The kernel starts the device by a store that comes after a barrier.
                m.drain_all(self.index);
                m.tags.share(owner.scope);
            }),
            Err(error) => with(|m| m.note(|_| error.to_string())),
        }
        self.end(&owner);
    }

    /// Ends a space, unless operations on it are under way, and puts a new one in its place.
    pub(crate) fn retire(&self, space: u8, eager: bool) {
        let place = &self.world.places[usize::from(space)];
        let owner = Rc::clone(&place.borrow());
        if owner.retiring.get() || owner.retired.get() || !owner.is_quiet(eager) {
            return;
        }
        owner.retiring.set(true);
        let busy = owner.is_busy();
        let shared = with(|m| {
            m.may_find_retired |= busy;
            m.tags.unshare(owner.scope)
        });
        match self.flusher().retire(space_of(&owner)) {
            Ok(()) => {
                owner.retired.set(true);
                with(|m| m.judge_retired(owner.scope, owner.root));
                if !owner.is_busy() {
                    self.bury(&owner);
                }
                let root = with(|m| m.memory.take_root());
                let new = self
                    .flusher()
                    .space(crate::machine::physical::physical_address(root));
                match new {
                    Ok(new) => {
                        let new = with(|m| self.world.adopt(m, Some(new), root));
                        place.replace(new);
                    }
                    Err(error) => with(|m| m.fail(format!("no space can be made: {error}"))),
                }
            }
            Err(RetireError::Running(cpus)) => with(|m| {
                if shared {
                    m.tags.share(owner.scope);
                }
                m.note(|_| format!("retire is refused: {cpus:?} run it"));
                if cpus.is_empty() {
                    m.fail(String::from("retire is refused, but no CPU is named"));
                }
            }),
            Err(error) => with(|m| m.fail(format!("retire: {error}"))),
        }
        // The kernel's own flag is stored with release.
        with(|m| m.drain_all(m.current));
        owner.retiring.set(false);
    }

    /// Gives back what a retired space had.
    fn bury(&self, owner: &Owner<W>) {
        let mut edit = Edit::new(owner, false);
        edit.unlink_top();
        with(|m| m.drain_all(m.current));
        edit.frees.push(owner.root);
        give_back(&edit.frees);
        with(|m| m.lines.free(space_of(owner)));
    }

    /// The CPU's operations have ended: it leaves its space; the last CPU retires all spaces.
    pub(crate) fn finish(&mut self) {
        self.unload();
        // The kernel counts its users by a locked instruction, which orders the stores before it.
        with(|m| m.drain_all(self.index));
        let done = self.world.done.get() + 1;
        self.world.done.set(done);
        if done == with(|m| m.cpus.len()) {
            for place in &self.world.places {
                let owner = Rc::clone(&place.borrow());
                if let Err(error) = self.flusher().retire(space_of(&owner)) {
                    with(|m| m.fail(format!("a space that no CPU uses can't retire: {error}")));
                }
                with(|m| m.judge_retired(owner.scope, owner.root));
            }
        }
    }
}

/// The space of an owner that is not the kernel.
pub(crate) fn space_of<const W: usize>(owner: &Owner<W>) -> &Space<W> {
    owner
        .space
        .as_deref()
        .unwrap_or_else(|| unreachable!("the kernel is no space"))
}

/// Gives frames and tables back: what is used of them from now on is poison.
pub(crate) fn give_back(frames: &[u16]) {
    with(|m| {
        for frame in frames {
            let free = m.memory.put(*frame);
            m.note(|_| {
                format!(
                    "frame {frame} {}",
                    if free { "is freed" } else { "is mapped less" }
                )
            });
        }
    });
}
