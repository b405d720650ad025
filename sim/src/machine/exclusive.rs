//! arm64: read-modify-writes. One orders the accesses before it (release) and after its load (acquire), but its own store
//! may be seen by others only after loads that follow it; a full barrier ends that.
//!
//! A CPU's pending updates are older than everything in its store buffer.

use core::sync::atomic::AtomicU64;

use super::Machine;

/// The store of a read-modify-write that other CPUs do not see yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    /// Lives until the end of the run: only registered memory is updated.
    word: *const AtomicU64,
    value: u64,
}

/// A CPU has room for so many.
const ROOM: usize = 4;

impl Machine {
    /// Whether `cpu` has stored something that others do not see yet.
    pub(crate) fn has_stored(&self, cpu: usize) -> bool {
        let it = &self.cpus[cpu];
        !it.buffer.is_empty() || !it.updates.is_empty()
    }

    /// The value of a word that `cpu` has updated itself.
    pub(crate) fn own_update(&self, cpu: usize, word: &AtomicU64) -> Option<u64> {
        let updates = self.cpus[cpu].updates.iter().rev();
        updates
            .filter(|update| core::ptr::eq(update.word, word))
            .map(|update| update.value)
            .next()
    }

    /// `cpu` is about to update a word: its plain stores are seen first, and so are all updates of the word.
    pub(crate) fn before_update(&mut self, cpu: usize, word: &AtomicU64) {
        if !self.cpus[cpu].buffer.is_empty() || self.cpus[cpu].updates.len() >= ROOM {
            self.drain_all(cpu);
        }
        self.settle_updates(word);
    }

    /// `cpu` has updated a word; others see it later.
    pub(crate) fn defer_update(&mut self, cpu: usize, word: &AtomicU64, value: u64) {
        self.cpus[cpu].updates.push_back(Update { word, value });
    }

    /// All updates of a word are seen, with those that come before them.
    pub(crate) fn settle_updates(&mut self, word: &AtomicU64) {
        for cpu in 0..self.cpus.len() {
            while self.cpus[cpu]
                .updates
                .iter()
                .any(|update| core::ptr::eq(update.word, word))
            {
                self.complete_update(cpu);
            }
        }
    }

    /// The oldest update of `cpu` is seen; false if it has none.
    pub(crate) fn complete_update(&mut self, cpu: usize) -> bool {
        let Some(Update { word, value }) = self.cpus[cpu].updates.pop_front() else {
            return false;
        };
        self.tally.drains += 1;
        // SAFETY: `update` defers only stores to words of registered memory, and the scenario keeps what it has
        // registered until the run is over.
        let word = unsafe { &*word };
        self.note_for(cpu, |m| {
            format!("  others see {} = {}", m.name(word), m.show(word, value))
        });
        self.write_word(word, value);
        true
    }
}
