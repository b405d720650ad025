//! The PCIDs of one CPU: six slots, each with the id of a space and the generation its entries have caught up with.
//!
//! PCIDs belong to a CPU, not to a space: slot `i` is PCID `i + 1`, and PCID 0 is the kernel's own root. Six is Linux's
//! number (`TLB_NR_DYN_ASIDS`): more are rarely still warm when they are used again.
//!
//! Invariant: a slot's PCID never holds entries of its space older than its generation, and none of any other space.

use crate::{
    private::Private,
    slot::OWN_WORDS,
    variant::{Broken, broken},
};

/// How many spaces a CPU remembers.
pub(super) const SLOTS: usize = 6;
/// The PCID of the kernel's own root.
pub(super) const KERNEL_PCID: u16 = 0;

const IDS: usize = 0;
const GENERATIONS: usize = SLOTS;
const CURRENT: usize = 2 * SLOTS;
const NEXT: usize = 2 * SLOTS + 1;
const _: () = assert!(NEXT < OWN_WORDS);

/// The slots, in the owner's private words.
#[derive(Debug)]
pub(super) struct PcidSlots<'a>(pub(super) &'a [Private; OWN_WORDS]);

/// What is left in TLBs of the PCID that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entries {
    /// Valid ones: keep them.
    Fresh,
    /// Old ones of the same space.
    Behind,
    /// Those of another space.
    Foreign,
}

impl PcidSlots<'_> {
    /// Forgets all spaces, after everything was flushed.
    pub(super) fn reset(&self) {
        for word in self.0 {
            word.set(0);
        }
    }

    /// Notes how far the entries of the loaded space have caught up, before another one is loaded.
    #[inline(always)]
    pub(super) fn save(&self, generation: u64) {
        self.0[GENERATIONS + self.current()].set(generation);
    }

    /// The PCID that is loaded, while a space is.
    #[cfg(test)]
    pub(super) fn current_pcid(&self) -> u16 {
        self.current() as u16 + 1
    }

    #[inline(always)]
    fn current(&self) -> usize {
        // The bound is for the compiler: only values below `SLOTS` are stored.
        (self.0[CURRENT].get() as usize).min(SLOTS - 1)
    }

    /// Chooses the PCID for the space `id` at generation `now`, and notes it as current.
    #[inline]
    pub(super) fn choose(&self, id: u64, now: u64) -> (u16, Entries) {
        for slot in 0..SLOTS {
            if self.0[IDS + slot].get() == id {
                self.0[CURRENT].set(slot as u64);
                let fresh = self.0[GENERATIONS + slot].get() == now;
                self.0[GENERATIONS + slot].set(now);
                let entries = if fresh {
                    Entries::Fresh
                } else {
                    Entries::Behind
                };
                return (slot as u16 + 1, entries);
            }
        }
        let slot = (self.0[NEXT].get() as usize).min(SLOTS - 1);
        self.0[NEXT].set(if slot + 1 == SLOTS {
            0
        } else {
            slot as u64 + 1
        });
        self.0[CURRENT].set(slot as u64);
        self.0[IDS + slot].set(id);
        self.0[GENERATIONS + slot].set(now);
        let entries = if broken(Broken::PcidSlotKept) {
            Entries::Fresh
        } else {
            Entries::Foreign
        };
        (slot as u16 + 1, entries)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_again_and_taken_over_in_turn() {
        let words = [const { Private::new(0) }; OWN_WORDS];
        let slots = PcidSlots(&words);
        for id in 1..=6 {
            assert_eq!(slots.choose(id, 10), (id as u16, Entries::Foreign));
        }
        assert_eq!(slots.choose(3, 10), (3, Entries::Fresh));
        assert_eq!(slots.choose(3, 11), (3, Entries::Behind));
        slots.save(15);
        assert_eq!(slots.choose(3, 15), (3, Entries::Fresh));
        // A seventh space takes the oldest slot, and the first one then the next.
        assert_eq!(slots.choose(7, 1), (1, Entries::Foreign));
        assert_eq!(slots.choose(1, 10), (2, Entries::Foreign));
        assert_eq!(slots.current_pcid(), 2);
        slots.reset();
        assert_eq!(slots.choose(7, 1), (1, Entries::Foreign));
    }
}
