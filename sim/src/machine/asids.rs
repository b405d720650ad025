//! arm64: what must hold of ASIDs and of what CPUs have loaded (compare the invariants of Linux's public TLA+ model): no two
//! CPUs run different spaces under one ASID, and a CPU that has a space loaded has nothing of its ASID that was invalidated.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Machine, Mode, oracle::Promise};

/// Where the spaces' tags stand, by scope.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    words: Vec<(u8, *const AtomicU64)>,
    /// Spaces that a device uses, and the ASID that each keeps.
    shared: Vec<(u8, Option<u16>)>,
}

impl Tags {
    /// Notes where a space's tag stands.
    pub(crate) fn watch(&mut self, scope: u8, word: &AtomicU64) {
        self.words.push((scope, word));
    }

    /// The space whose tag stands in a word.
    pub(crate) fn scope_of(&self, word: &AtomicU64) -> Option<u8> {
        let mut words = self.words.iter();
        let (scope, _) = words.find(|(_, other)| core::ptr::eq(*other, word))?;
        Some(*scope)
    }

    /// The ASID or global PCID that a space has now.
    pub(crate) fn tag(&self, scope: u8) -> Option<u16> {
        let (_, word) = self.words.iter().find(|(other, _)| *other == scope)?;
        // SAFETY: the word is part of a space of this run, whose memory stays until the run is over.
        let tag = unsafe { (**word).load(Relaxed) };
        (tag != 0).then_some(tag as u16)
    }

    /// A device uses a space from now on.
    pub(crate) fn share(&mut self, scope: u8) {
        let asid = self.tag(scope);
        if !self.shared.iter().any(|(other, _)| *other == scope) {
            self.shared.push((scope, asid));
        }
    }

    /// No device uses a space any more; whether one did.
    pub(crate) fn unshare(&mut self, scope: u8) -> bool {
        let before = self.shared.len();
        self.shared.retain(|(other, _)| *other != scope);
        self.shared.len() != before
    }

    /// The ASID by which a device knows a space.
    fn shared(&self, scope: u8) -> Option<Option<u16>> {
        self.shared
            .iter()
            .find(|(other, _)| *other == scope)
            .map(|(_, asid)| *asid)
    }
}

impl Machine {
    /// `cpu` has another root or ASID now.
    pub(crate) fn judge_loaded(&mut self, cpu: usize) {
        let own = self.context(cpu, 0);
        if self.cpus[cpu].exempt || own.scope == 0 {
            return;
        }
        let other = (0..self.cpus.len()).find(|other| {
            let theirs = self.context(*other, 0);
            // One that is leaving its space may lag behind a rollover.
            let runs = *other != cpu && self.cpus[*other].uses == Some(theirs.scope);
            runs && theirs.scope != own.scope && theirs.tag == own.tag
        });
        if let Some(other) = other {
            let (one, two) = (self.cpus[cpu].number, self.cpus[other].number);
            return self.fail(format!(
                "cpu{one} and cpu{two} run two spaces under ASID {}",
                own.tag
            ));
        }
        if let Some(Some(asid)) = self.tags.shared(own.scope)
            && asid != own.tag
        {
            let number = self.cpus[cpu].number;
            return self.fail(format!(
                "cpu{number} has ASID {} for a space that a device knows by {asid}",
                own.tag
            ));
        }
        self.judge_readiness(cpu);
    }

    /// The broadcasts of the running CPU before a flush of a space that a device uses.
    pub(crate) fn broadcasts_for_device(&self, scope: u8) -> Option<u64> {
        self.tags
            .shared(scope)
            .map(|_| self.cpus[self.current].broadcasts)
    }

    /// A flush of `cpu` has completed; `before` are its broadcasts before, if a device uses the space.
    pub(crate) fn judge_broadcast(&mut self, cpu: usize, scope: u8, before: Option<u64>) {
        if before == Some(self.cpus[cpu].broadcasts) && self.tags.shared(scope).is_some() {
            let number = self.cpus[cpu].number;
            self.fail(format!("a flush of cpu{number} completed without a broadcast, though a device uses the space"));
        }
    }

    /// A flush has completed: what may `cpu` still have?
    pub(crate) fn judge_arm_completion(&mut self, cpu: usize, promise: &Promise) {
        if self.mode != Mode::Arm || promise.scope == 0 || self.cpus[cpu].exempt {
            return;
        }
        if self.context(cpu, 0).scope == promise.scope {
            self.judge_readiness(cpu);
        }
        if promise.hard {
            self.judge_own_asid(cpu, promise.scope);
        }
    }

    /// Nothing that no CPU may have any more stands under the ASID of `scope`, whether or not it is loaded.
    pub(crate) fn judge_own_asid(&mut self, cpu: usize, scope: u8) {
        if self.mode != Mode::Arm || self.cpus[cpu].exempt {
            return;
        }
        let Some(asid) = self.tags.tag(scope) else {
            return;
        };
        let tlb = &self.cpus[cpu].tlb;
        let mut own = tlb
            .entries
            .iter()
            .filter(|entry| entry.scope == scope && entry.tag == asid);
        if let Some(entry) = own.find(|entry| self.oracle.must_be_gone(entry)).copied() {
            let number = self.cpus[cpu].number;
            let entry = entry.show();
            self.fail(format!(
                "cpu{number} has {entry}, which may be walked, though its flush has completed"
            ));
        }
    }
}
