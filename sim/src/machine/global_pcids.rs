//! x86: what must hold of PCIDs that are the same on all CPUs. A switch to one never flushes, so nothing old may stand under
//! it on any CPU, loaded or not.

use core::sync::atomic::AtomicU64;

use super::{Machine, Mode, oracle::Promise};

/// PCIDs below are each CPU's own: the kernel's and six slots.
const FIRST: u16 = 7;

/// The bit of a space's tag that says that CPUs may still run it under their own PCIDs.
const TRANSITION: u64 = 1 << 16;

impl Machine {
    /// The global PCID that a space has now.
    fn global_pcid(&self, scope: u8) -> Option<u16> {
        let pcid = self.tags.tag(scope).filter(|_| self.is_x86())?;
        // The tag may also say that the space shall have none.
        (pcid != 0).then_some(pcid)
    }

    fn is_x86(&self) -> bool {
        matches!(self.mode, Mode::X86 { .. })
    }

    /// The running CPU stores to a shared word. If it is a space's tag: what does that claim?
    pub(crate) fn judge_tag(&mut self, word: &AtomicU64, value: u64) {
        let Some(scope) = self.tags.scope_of(word).filter(|_| self.is_x86()) else {
            return;
        };
        let pcid = value as u16;
        if pcid == 0 {
            return;
        }
        if self.global_pcid(scope) != Some(pcid) {
            self.judge_new_pcid(scope, pcid);
        }
        if value & TRANSITION == 0 {
            self.judge_settled(scope, pcid);
        }
    }

    /// A space gets a PCID: nothing of another space may stand under it.
    fn judge_new_pcid(&mut self, scope: u8, pcid: u16) {
        for cpu in (0..self.cpus.len()).filter(|cpu| !self.cpus[*cpu].exempt) {
            let context = self.context(cpu, 0);
            let mut own = self.cpus[cpu].tlb.entries.iter();
            let left = own
                .find(|entry| entry.tag == pcid && entry.scope != 0)
                .copied();
            let number = self.cpus[cpu].number;
            if context.tag == pcid {
                return self.fail(format!(
                    "space {scope} gets PCID {pcid}, by which cpu{number} has the root of {} loaded",
                    context.scope
                ));
            }
            if let Some(entry) = left {
                let entry = entry.show();
                return self.fail(format!(
                    "space {scope} gets PCID {pcid}, under which cpu{number} has {entry} of scope {}",
                    left.map_or(0, |entry| entry.scope)
                ));
            }
        }
    }

    /// A space is said to be run under its global PCID by all CPUs.
    fn judge_settled(&mut self, scope: u8, pcid: u16) {
        let other = (0..self.cpus.len()).find(|cpu| {
            let context = self.context(*cpu, 0);
            !self.cpus[*cpu].exempt && context.scope == scope && context.tag != pcid
        });
        if let Some(cpu) = other {
            let (number, own) = (self.cpus[cpu].number, self.context(cpu, 0).tag);
            self.fail(format!(
                "space {scope} has settled on PCID {pcid}, but cpu{number} has it loaded under {own}"
            ));
        }
    }

    /// `cpu` has loaded another root: no other CPU may run another space under the same global PCID.
    pub(crate) fn judge_global_pcid(&mut self, cpu: usize) {
        let own = self.context(cpu, 0);
        if self.cpus[cpu].exempt || own.tag < FIRST {
            return;
        }
        let other = (0..self.cpus.len()).find(|other| {
            let theirs = self.context(*other, 0);
            let counts = *other != cpu && !self.cpus[*other].exempt;
            counts && theirs.scope != own.scope && theirs.tag == own.tag
        });
        if let Some(other) = other {
            let (one, two) = (self.cpus[cpu].number, self.cpus[other].number);
            self.fail(format!(
                "cpu{one} and cpu{two} have two spaces loaded under PCID {}",
                own.tag
            ));
        }
    }

    /// A flush has completed: nothing older may stand under the space's global PCID on `cpu`.
    pub(crate) fn judge_pcid_completion(&mut self, cpu: usize, promise: &Promise) {
        let Some(pcid) = self.global_pcid(promise.scope) else {
            return;
        };
        if self.cpus[cpu].exempt {
            return;
        }
        let entries = self.cpus[cpu].tlb.entries.iter();
        let mut own = entries.filter(|entry| entry.scope == promise.scope && entry.tag == pcid);
        let closed = own.find(|entry| {
            self.oracle.is_closed(entry).is_some() || self.oracle.is_closed_hard(entry)
        });
        if let Some(entry) = closed.copied() {
            let (number, entry) = (self.cpus[cpu].number, entry.show());
            self.fail(format!(
                "cpu{number} has {entry} under its space's global PCID though its flush has completed"
            ));
        }
    }
}
