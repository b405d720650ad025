//! Accesses to memory, and the faults they take.

use super::Actor;
use crate::{
    machine::{
        current::with,
        layout,
        scheduler::point,
        walk::{Access, Outcome},
    },
    scenario::backend::Backend,
};

impl<F: Backend<W>, const W: usize> Actor<'_, F, W> {
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
            let left = m.translation(self.index, tag, address);
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
}
