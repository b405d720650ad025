//! What a CPU may use, and what it may still have.

use super::{Promise, is_older};
use crate::machine::{Machine, layout, tlb::Entry};

impl Machine {
    /// A space has retired: no CPU may have anything of it that it can use, now or later.
    pub(crate) fn judge_retired(&mut self, scope: u8, root: u16) {
        let now = self.tick();
        self.oracle.close_all(scope, now);
        for cpu in 0..self.cpus.len() {
            let context = self.context(cpu, 0);
            if context.root == root || self.cpus[cpu].uses == Some(scope) {
                let number = self.cpus[cpu].number;
                return self.fail(format!(
                    "scope {scope} has retired, but cpu{number} has its root loaded"
                ));
            }
            self.oracle_judges_presence(cpu);
            self.judge_own_asid(cpu, scope);
        }
    }

    /// The moment a flush has completed: may `cpu` still use what it should have lost? `may` is what an NMI
    /// handler there would be told.
    pub(crate) fn judge_completion(&mut self, cpu: usize, promise: &Promise, may: bool) {
        if promise.hard {
            self.oracle_judges_presence(cpu);
        }
        let address = if promise.scope == 0 { u64::MAX } else { 0 };
        let uses = promise.scope != 0 && self.cpus[cpu].uses == Some(promise.scope);
        if uses || (may && self.context(cpu, address).scope == promise.scope) {
            self.judge_readiness(cpu);
        }
        self.judge_arm_completion(cpu, promise);
    }

    /// `cpu` is about to use its space: it must hold nothing that is closed for use, nor another space's entries.
    pub(crate) fn judge_readiness(&mut self, cpu: usize) {
        if self.cpus[cpu].exempt {
            return;
        }
        let context = self.context(cpu, 0);
        let entries = self.usable(cpu);
        let number = self.cpus[cpu].number;
        for entry in entries {
            if let Some(page) = self.oracle.is_closed(&entry) {
                let address = layout::address(page);
                let entry = entry.show();
                return self.fail(format!(
                    "cpu{number} may use {entry} though a flush of {address:#x} has completed"
                ));
            }
            if entry.scope != 0 && entry.scope != context.scope {
                let entry = entry.show();
                return self.fail(format!(
                    "cpu{number} may use {entry}, which is another space's"
                ));
            }
        }
    }

    /// Whether `cpu` could use, even speculatively, what no CPU may have any more.
    pub(crate) fn oracle_judges_presence(&mut self, cpu: usize) {
        if self.cpus[cpu].exempt {
            return;
        }
        if let Some(entry) = self
            .usable(cpu)
            .into_iter()
            .find(|entry| self.oracle.is_closed_hard(entry))
        {
            let number = self.cpus[cpu].number;
            let entry = entry.show();
            self.fail(format!(
                "cpu{number} can speculatively use {entry} though its flush has completed"
            ));
        }
    }

    /// The entries that `cpu` can use with the root that is loaded.
    fn usable(&self, cpu: usize) -> Vec<Entry> {
        let tag = self.context(cpu, 0).tag;
        self.cached(cpu)
            .chain(&self.cpus[cpu].tlb.fetched)
            .filter(|entry| entry.serves(tag))
            .copied()
            .collect()
    }

    /// `cpu` uses `entry` for `page`, which it takes for one of `space`.
    pub(crate) fn judge_use(&mut self, cpu: usize, page: u8, entry: &Entry, space: Option<u8>) {
        let number = self.cpus[cpu].number;
        let address = layout::address(page);
        let context = self.context(cpu, address);
        if let Some(space) = space.filter(|_| !layout::is_kernel(page))
            && context.scope != space
        {
            return self.fail(format!(
                "cpu{number} uses {address:#x} of space {space} in the tables of {}",
                context.scope
            ));
        }
        let owner = if layout::is_kernel(page) {
            0
        } else {
            context.scope
        };
        if entry.scope != owner {
            let shown = entry.show();
            return self.fail(format!(
                "cpu{number} uses {address:#x} of scope {owner} by {shown} of scope {}",
                entry.scope
            ));
        }
        let truth = &self.oracle.scopes[usize::from(owner)];
        let (closed, changed) = (
            truth.closed[usize::from(page)],
            truth.pages[usize::from(page)],
        );
        if is_older(&entry.times, &closed) {
            let shown = entry.show();
            return self.fail(format!(
                "cpu{number} uses {shown} though a flush of {address:#x} has completed"
            ));
        }
        if is_older(&entry.times, &changed) {
            self.tally.stale_hits_before_completion += 1;
        }
        if self.memory.generation(entry.frame) != Some(entry.generation) {
            let shown = entry.show();
            self.fail(format!("cpu{number} uses {shown}, a frame that was freed"));
        }
    }
}
