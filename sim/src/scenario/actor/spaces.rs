//! Spaces that devices share, and spaces that end.

use std::rc::Rc;

use shootdown::RetireError;

use super::{Actor, give_back, space_of};
use crate::{
    machine::current::with,
    scenario::{backend::Backend, edit::Edit, owner::Owner},
};

impl<F: Backend<W>, const W: usize> Actor<'_, F, W> {
    /// A device uses a space's tables from now on.
    pub(crate) fn share_with_device(&self, space: u8) {
        let Some(owner) = self.begin(space) else {
            return;
        };
        match self.flusher().share_with_device(space_of(&owner)) {
            Ok(()) => with(|m| {
                // The kernel starts the device by a plain store.
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
    pub(super) fn bury(&self, owner: &Owner<W>) {
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
