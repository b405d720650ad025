//! ASIDs for spaces: each space has one of its own for life.
//!
//! A bitmap of all ASIDs. Taken ones are given back by `retire`, after everything of them was flushed (invariant 8). When
//! none is left, a space can't be made: an ASID is never given twice.

use crate::{
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed},
        const_unless_loom, zeroed,
    },
    error::SpaceError,
};

/// ASID 0 is loaded with the reserved root.
pub(super) const RESERVED: u16 = 0;

/// One bit an ASID, in `A` words: 4 for 8-bit ASIDs, 1024 for 16-bit ones.
#[derive(Debug)]
pub(super) struct Asids<const A: usize> {
    taken: [AtomicU64; A],
    /// The word where the next search begins, so that recently freed ASIDs are not the first to be taken.
    hint: AtomicU64,
}

impl<const A: usize> Asids<A> {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            assert!(A >= 1 && A <= 1024, "1 to 1024 words: up to 65536 ASIDs");
            Self {
                taken: zeroed!(),
                hint: AtomicU64::new(0),
            }
        }
    }

    /// Takes a free ASID below `limit`.
    pub(super) fn take(&self, limit: u64) -> Result<u16, SpaceError> {
        let words = (limit as usize).div_ceil(64).min(A);
        let first = self.hint.load(Relaxed) as usize;
        for turn in 0..words {
            let index = (first + turn) % words;
            let unusable = if index == 0 { 1 << RESERVED } else { 0 } | beyond(limit, index);
            loop {
                let taken = self.taken[index].load(Relaxed);
                let free = !(taken | unusable);
                if free == 0 {
                    break;
                }
                let bit = free & free.wrapping_neg();
                // Acquire: pairs with `give_back`, whose flush comes before.
                let swapped =
                    self.taken[index].compare_exchange(taken, taken | bit, AcqRel, Acquire);
                if swapped.is_ok() {
                    self.hint.store(index as u64, Relaxed);
                    return Ok((64 * index) as u16 + bit.trailing_zeros() as u16);
                }
            }
        }
        Err(SpaceError::TagsExhausted {
            limit: limit.min(64 * A as u64) - 1,
        })
    }

    /// Frees `asid`, of which no TLB holds an entry any more.
    pub(super) fn give_back(&self, asid: u16) {
        let bit = 1 << (asid % 64);
        self.taken[usize::from(asid / 64)].fetch_and(!bit, AcqRel);
    }
}

#[cfg(all(feature = "_sim", not(loom)))]
impl<const A: usize> Asids<A> {
    /// The shared words, for the simulated machine.
    pub(super) fn words(&self, name: &mut dyn FnMut(&core::sync::atomic::AtomicU64)) {
        for word in &self.taken {
            name(word.native());
        }
        name(self.hint.native());
    }
}

/// The bits of word `index` that stand for ASIDs of `limit` and above.
const fn beyond(limit: u64, index: usize) -> u64 {
    let start = 64 * index as u64;
    if limit >= start + 64 {
        0
    } else if limit <= start {
        u64::MAX
    } else {
        u64::MAX << (limit - start)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_asid_once_and_never_zero() {
        let asids = Asids::<4>::new();
        let all: BTreeSet<_> = (0..255).map(|_| asids.take(256).unwrap()).collect();
        assert_eq!(all.len(), 255);
        assert!(!all.contains(&RESERVED));
        assert_eq!(
            asids.take(256),
            Err(SpaceError::TagsExhausted { limit: 255 })
        );
        asids.give_back(77);
        assert_eq!(asids.take(256), Ok(77));
    }

    #[test]
    fn the_limit_may_lie_within_a_word() {
        let asids = Asids::<2>::new();
        let all: BTreeSet<_> = (0..69).map(|_| asids.take(70).unwrap()).collect();
        assert_eq!(all.last(), Some(&69));
        assert!(asids.take(70).is_err());
    }
}
