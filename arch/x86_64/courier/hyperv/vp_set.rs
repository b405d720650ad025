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
