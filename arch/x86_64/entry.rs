//! Which flush a change of a leaf entry needs.

use crate::flusher::Needed;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const NO_EXECUTE: u64 = 1 << 63;
/// Bits that the hardware ignores: 9 to 11 and 52 to 58.
const SOFTWARE: u64 = 0x7 << 9 | 0x7f << 52;

/// Which flush is needed when a leaf entry changes from `old` to `new`.
///
/// Hardware does not cache entries that are not present, and sets ACCESSED and DIRTY itself, so setting those needs
/// nothing, and neither does clearing ACCESSED: at worst the page looks idle a little longer. Clearing DIRTY needs a
/// flush, or a CPU that has cached it as dirty writes without setting it again. A change that only permits more can at
/// worst cause a spurious fault elsewhere. Making a page a user page takes rights from the kernel (SMEP, SMAP), and making
/// a read-only dirty page writable takes them from shadow stacks, so these are not among those. Everything else needs a flush (Intel SDM volume 3, "Recommended Invalidation"
/// and "Optional Invalidation").
///
/// ```
/// use shootdown::{Needed, x86_64::needs_flush};
///
/// assert_eq!(needs_flush(0, 0x5007), Needed::No); // mapped
/// assert_eq!(needs_flush(0x5007, 0), Needed::All); // unmapped
/// assert_eq!(needs_flush(0x5007, 0x5005), Needed::All); // write-protected
/// assert_eq!(needs_flush(0x5005, 0x5007), Needed::Local); // made writable
/// ```
pub const fn needs_flush(old: u64, new: u64) -> Needed {
    if old & PRESENT == 0 {
        return Needed::No;
    }
    if new & PRESENT == 0 {
        return Needed::All;
    }
    let cleared = old & !new;
    let set = new & !old;
    // Read-only and dirty is how a shadow-stack page looks.
    let writable = if old & DIRTY == 0 { set & WRITABLE } else { 0 };
    let permits = writable | cleared & NO_EXECUTE;
    let harmless = set & (ACCESSED | DIRTY) | cleared & ACCESSED | (cleared | set) & SOFTWARE;
    if (cleared | set) & !(permits | harmless) != 0 {
        Needed::All
    } else if permits != 0 {
        Needed::Local
    } else {
        Needed::No
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A present, writable, user, accessed, dirty entry of frame 5.
    const ENTRY: u64 = 0x5067;

    #[test]
    fn each_bit_by_itself() {
        for bit in 0..64 {
            let flipped = ENTRY ^ 1 << bit;
            let expected = match bit {
                0 | 1 | 2 | 6 => Needed::All, // not present, read-only, supervisor, clean
                5 => Needed::No,              // idle
                9..=11 | 52..=58 => Needed::No,
                _ => Needed::All, // memory type, size, global, frame, key, no-execute
            };
            assert_eq!(needs_flush(ENTRY, flipped), expected, "bit {bit}");
        }
    }

    #[test]
    fn permitting_more_is_local() {
        let restricted = 0x5001 | NO_EXECUTE;
        assert_eq!(needs_flush(restricted, 0x5001), Needed::Local);
        assert_eq!(needs_flush(restricted, restricted | 1 << 2), Needed::All);
        assert_eq!(needs_flush(0x5041, 0x5043), Needed::All);
        assert_eq!(
            needs_flush(restricted, restricted | WRITABLE | DIRTY),
            Needed::Local
        );
        // More in one respect, less in another.
        assert_eq!(needs_flush(0x5005, 0x5003), Needed::All);
        assert_eq!(needs_flush(0x5007, 0x6007), Needed::All);
    }

    #[test]
    fn what_was_not_present_was_not_cached() {
        assert_eq!(needs_flush(0x5006, 0x7007), Needed::No);
    }
}
