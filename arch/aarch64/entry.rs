//! Which flush a change of a leaf descriptor needs.

use crate::flusher::Needed;

const VALID: u64 = 1 << 0;
/// AP[2]: read-only.
const READ_ONLY: u64 = 1 << 7;
const ACCESSED: u64 = 1 << 10;
/// DBM: hardware may make it writable.
const DIRTY_MANAGED: u64 = 1 << 51;
const EXECUTE_NEVER: u64 = 1 << 53 | 1 << 54;
/// Bits that the hardware ignores: 55 to 58.
const SOFTWARE: u64 = 0xf << 55;

/// Which flush is needed when a leaf descriptor changes from `old` to `new`.
///
/// Descriptors that are not valid, or whose access flag is clear, are not cached (Arm ARM, "TLB maintenance
/// requirements"), so making one valid needs nothing but [`mapped`](crate::TlbFlusher::mapped). Clearing the access
/// flag needs nothing either: at worst the page looks idle a little longer. A change that only permits more can at worst
/// cause a spurious fault elsewhere; giving EL0 access takes it from the kernel (PAN), so it is not among those. Everything else needs a flush; a change of the output address, the memory
/// type, the size or the contiguous bit must go through an invalid descriptor with a flush (break-before-make).
///
/// ```
/// use shootdown::{Needed, aarch64::needs_flush};
///
/// assert_eq!(needs_flush(0, 0x4000_0743), Needed::No); // mapped
/// assert_eq!(needs_flush(0x4000_0743, 0), Needed::All); // unmapped
/// assert_eq!(needs_flush(0x4000_0743, 0x4000_07c3), Needed::All); // write-protected
/// ```
pub const fn needs_flush(old: u64, new: u64) -> Needed {
    if old & VALID == 0 {
        return Needed::No;
    }
    if new & VALID == 0 {
        return Needed::All;
    }
    let cleared = old & !new;
    let set = new & !old;
    let permits = set & DIRTY_MANAGED | cleared & (READ_ONLY | EXECUTE_NEVER);
    let harmless = (cleared | set) & (ACCESSED | SOFTWARE);
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

    /// AP[1]: EL0 may access.
    const USER: u64 = 1 << 6;

    /// Valid page, normal memory, EL0, read-write, inner shareable, accessed, nG.
    const ENTRY: u64 = 0x4000_0000 | 0xf43 | DIRTY_MANAGED;

    #[test]
    fn each_bit_by_itself() {
        for bit in 0..64 {
            let expected = match bit {
                10 | 55..=58 => Needed::No,
                _ => Needed::All,
            };
            assert_eq!(needs_flush(ENTRY, ENTRY ^ 1 << bit), expected, "bit {bit}");
        }
    }

    #[test]
    fn permitting_more_is_local() {
        let restricted = (ENTRY | READ_ONLY | EXECUTE_NEVER) & !(USER | DIRTY_MANAGED);
        for more in [
            restricted & !READ_ONLY,
            restricted & !EXECUTE_NEVER,
            restricted | DIRTY_MANAGED,
        ] {
            assert_eq!(needs_flush(restricted, more), Needed::Local);
        }
        assert_eq!(needs_flush(restricted, restricted | USER), Needed::All);
        assert_eq!(
            needs_flush(restricted, (restricted & !READ_ONLY) ^ 0x1000),
            Needed::All
        );
    }
}
