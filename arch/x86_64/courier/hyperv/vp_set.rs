//! Sets of virtual processors (TLFS, "HV_VP_SET", sparse format).
//!
//! ```text
//! word 0   format: 0, sparse
//! word 1   mask of the banks that follow
//! word 2+  one word a bank that is in the mask, in ascending order: bit n of bank b is processor 64 * b + n
//! ```

use super::InputPage;
use crate::cpus::Bits;

/// A set names processors below this: 64 banks of 64.
pub(super) const MAX_VP: u32 = 4096;
/// Words before the banks.
pub(super) const HEADER: usize = 2;
const BANKS: usize = 64;
const SPARSE: u64 = 0;

/// Writes the set of the processors that `vps` gives, each below [`MAX_VP`], at word `first` of the page, and says how many
/// banks it has. The page needs room for 64 banks there.
pub(super) fn write(page: &InputPage, first: usize, vps: impl Iterator<Item = u32>) -> usize {
    let banks = first + HEADER;
    for bank in 0..BANKS {
        page.set(banks + bank, 0);
    }
    // Each bank at its own place first: processors come in any order.
    let mut mask = 0;
    for vp in vps {
        let bank = vp as usize / 64;
        mask |= 1 << bank;
        page.set(banks + bank, page.word(banks + bank) | 1 << (vp % 64));
    }
    // Then side by side. A bank never moves up, so none is overwritten before it has moved.
    let mut count = 0;
    for bank in Bits(mask) {
        page.set(banks + count, page.word(banks + bank));
        count += 1;
    }
    page.set(first, SPARSE);
    page.set(first + 1, mask);
    count
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::{collections::BTreeSet, vec::Vec};

    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    fn write_all(vps: impl IntoIterator<Item = u32>) -> (InputPage, usize) {
        let page = InputPage::new();
        let banks = write(&page, 2, vps.into_iter());
        (page, banks)
    }

    #[test]
    fn golden_sets() {
        let words = |vps: &[u32]| {
            let (page, banks) = write_all(vps.iter().copied());
            (2..4 + banks)
                .map(|index| page.word(index))
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&[0]), [0, 1, 1]);
        assert_eq!(words(&[63]), [0, 1, 1 << 63]);
        assert_eq!(words(&[64]), [0, 1 << 1, 1]);
        assert_eq!(
            words(&[130, 3, 129, 4095]),
            [0, 1 << 63 | 0b101, 1 << 3, 0b110, 1 << 63]
        );
        let (page, banks) = write_all(0..MAX_VP);
        assert_eq!((banks, page.word(3)), (64, u64::MAX));
        assert!((4..68).all(|index| page.word(index) == u64::MAX));
    }

    proptest! {
        /// Against brute force: what is decoded bank by bank is what went in, in whatever order, whatever stood there.
        #[test]
        fn the_same_processors_come_out(vps in btree_set(0..MAX_VP, 1..200), old: u64, down: bool) {
            let page = InputPage::new();
            for index in 0..512 {
                page.set(index, old);
            }
            let mut order: Vec<_> = vps.iter().copied().collect();
            if down {
                order.reverse();
            }
            let count = write(&page, 2, order.into_iter());
            prop_assert_eq!(page.word(2), 0);
            let banks: Vec<_> = (0..64).filter(|bank| page.word(3) >> bank & 1 != 0).collect();
            prop_assert_eq!(banks.len(), count);
            let mut decoded = BTreeSet::new();
            for (place, bank) in banks.into_iter().enumerate() {
                let word = page.word(4 + place);
                prop_assert!(word != 0);
                decoded.extend((0..64).filter(|bit| word >> bit & 1 != 0).map(|bit| 64 * bank + bit));
            }
            prop_assert_eq!(decoded, vps);
        }
    }
}
