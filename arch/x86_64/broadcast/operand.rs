//! The operands of INVLPGB, from pure functions.
//!
//! ```text
//! rAX  63:12 address · 5 nested · 4 final translation only · 3 globals too · 2 ASID valid · 1 PCID valid · 0 address valid
//! ECX  31 steps of 2 MiB, else 4 KiB · 15:0 EXTRA pages: the count less one
//! EDX  27:16 PCID · 15:0 ASID
//! ```
//!
//! Source: AMD64 Architecture Programmer's Manual volume 3, "INVLPGB". What is not valid is not compared: with no valid
//! bit everything goes that is not global, guests' entries included. So the ASID is always valid, and 0, which is the
//! host's own (Linux has had to mend this, commit 634ab76159a8).

use crate::{
    paging::Stride,
    range::Range,
    variant::{Broken, broken},
};

bitflags::bitflags! {
    /// The low bits of rAX: what an entry must match to be dropped, and which entries are meant.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct InvlpgbFlags: u64 {
        /// The address counts.
        const ADDRESS = 1 << 0;
        /// The PCID counts.
        const PCID = 1 << 1;
        /// The ASID counts: 0 is the host itself.
        const ASID = 1 << 2;
        /// Global entries too.
        const GLOBAL = 1 << 3;
        /// Leaf entries only: paging-structure caches stay.
        const FINAL_ONLY = 1 << 4;
        /// Nested translations too.
        const NESTED = 1 << 5;
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for InvlpgbFlags {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "InvlpgbFlags({=u64:b})", self.bits());
    }
}

/// ECX: steps of 2 MiB.
const LARGE_STEPS: u32 = 1 << 31;

/// The operands of one INVLPGB, as the registers hold them. Only the flusher makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Invlpgb {
    rax: u64,
    ecx: u32,
    edx: u32,
}

impl Invlpgb {
    /// rAX: the address and [`InvlpgbFlags`].
    #[inline(always)]
    pub const fn rax(self) -> u64 {
        self.rax
    }

    /// ECX: the extra pages and the step.
    #[inline(always)]
    pub const fn ecx(self) -> u32 {
        self.ecx
    }

    /// EDX: the PCID and the ASID.
    #[inline(always)]
    pub const fn edx(self) -> u32 {
        self.edx
    }
}

/// Whose entries are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// One PCID's, which are not global. Only with CR4.PCIDE, unless it is 0.
    Pcid(u16),
    /// All PCIDs', global ones included: the kernel's.
    Anyone,
}

impl Whose {
    const fn flags(self) -> InvlpgbFlags {
        match self {
            Self::Pcid(_) => InvlpgbFlags::PCID.union(InvlpgbFlags::ASID),
            Self::Anyone => InvlpgbFlags::ASID.union(InvlpgbFlags::GLOBAL),
        }
    }

    const fn edx(self) -> u32 {
        match self {
            Self::Pcid(pcid) => (pcid as u32) << 16,
            Self::Anyone => 0,
        }
    }
}

/// All entries of `whose`, and its paging-structure caches.
pub(super) const fn all(whose: Whose) -> Invlpgb {
    Invlpgb {
        rax: whose.flags().bits(),
        ecx: 0,
        edx: whose.edx(),
    }
}

/// All entries that are not global, of all PCIDs, and the paging-structure caches.
pub(super) const fn all_but_globals() -> Invlpgb {
    Invlpgb {
        rax: InvlpgbFlags::ASID.bits(),
        ecx: 0,
        edx: 0,
    }
}

/// How many steps a range has: pages of 4 KiB or 2 MiB, of which a page of 1 GiB has 512.
pub(super) const fn steps(range: &Range) -> u64 {
    match range.stride() {
        Stride::Size1G => range.pages().saturating_mul(512),
        _ => range.pages(),
    }
}

/// The entries of `whose` for each page of `range`, `extra` being the largest count of extra pages that the CPU takes.
/// `leaves_only` keeps the paging-structure caches.
///
/// A [`Range`] never touches the hole between the two halves, so no instruction does.
pub(super) fn pages(
    whose: Whose,
    range: &Range,
    leaves_only: bool,
    extra: u16,
) -> impl Iterator<Item = Invlpgb> + use<> {
    let (shift, large) = match range.stride() {
        Stride::Size4K => (12, 0),
        _ => (21, LARGE_STEPS),
    };
    let mut flags = whose.flags() | InvlpgbFlags::ADDRESS;
    flags.set(InvlpgbFlags::FINAL_ONLY, leaves_only);
    let most = u64::from(extra) + 1;
    let mut addr = range.start();
    let mut left = steps(range);
    core::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let count = left.min(most);
        // One page is no extra page.
        let extra = if broken(Broken::InvlpgbShort) {
            (count - 1).saturating_sub(1)
        } else {
            count - 1
        };
        let operands = Invlpgb {
            rax: addr | flags.bits(),
            ecx: extra as u32 | large,
            edx: whose.edx(),
        };
        left -= count;
        // The last page may be that at the very top.
        addr = addr.wrapping_add(count << shift);
        Some(operands)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::{paging::Paging, range::RangeError};

    /// As registers: rAX, ECX, EDX.
    fn registers(operands: Invlpgb) -> (u64, u32, u32) {
        (operands.rax(), operands.ecx(), operands.edx())
    }

    fn encode(
        whose: Whose,
        (start, count, stride): (u64, u64, Stride),
        leaves_only: bool,
        extra: u16,
    ) -> Vec<(u64, u32, u32)> {
        let range = Range::new(Paging::X86_4_LEVEL, start, count, stride).unwrap();
        pages(whose, &range, leaves_only, extra)
            .map(registers)
            .collect()
    }

    #[test]
    fn every_flag_has_its_bit() {
        let bits = [
            InvlpgbFlags::ADDRESS,
            InvlpgbFlags::PCID,
            InvlpgbFlags::ASID,
            InvlpgbFlags::GLOBAL,
            InvlpgbFlags::FINAL_ONLY,
            InvlpgbFlags::NESTED,
        ]
        .map(|flag| flag.bits());
        assert_eq!(bits, [0x01, 0x02, 0x04, 0x08, 0x10, 0x20]);
    }

    #[test]
    fn whole_scopes() {
        assert_eq!(registers(all(Whose::Pcid(7))), (0x06, 0, 0x0007_0000));
        assert_eq!(registers(all(Whose::Pcid(4094))), (0x06, 0, 0x0ffe_0000));
        assert_eq!(registers(all(Whose::Anyone)), (0x0c, 0, 0));
        assert_eq!(registers(all_but_globals()), (0x04, 0, 0));
    }

    #[test]
    fn counts_up_to_the_largest_and_beyond() {
        let of = |count| encode(Whose::Pcid(9), (0x5000, count, Stride::Size4K), true, 7);
        assert_eq!(of(1), [(0x5017, 0, 0x9_0000)]);
        assert_eq!(of(2), [(0x5017, 1, 0x9_0000)]);
        assert_eq!(of(8), [(0x5017, 7, 0x9_0000)]);
        assert_eq!(of(9), [(0x5017, 7, 0x9_0000), (0xd017, 0, 0x9_0000)]);
        assert_eq!(
            of(17),
            [
                (0x5017, 7, 0x9_0000),
                (0xd017, 7, 0x9_0000),
                (0x1_5017, 0, 0x9_0000)
            ]
        );
    }

    #[test]
    fn a_cpu_that_takes_no_extra_page() {
        let each = encode(Whose::Pcid(9), (0x5000, 2, Stride::Size4K), true, 0);
        assert_eq!(each, [(0x5017, 0, 0x9_0000), (0x6017, 0, 0x9_0000)]);
    }

    #[test]
    fn a_cpu_that_takes_the_largest_count_there_is() {
        let range = (0, 0x1_0001, Stride::Size4K);
        let each = encode(Whose::Pcid(9), range, true, u16::MAX);
        assert_eq!(each, [(0x17, 0xffff, 0x9_0000), (0x1000_0017, 0, 0x9_0000)]);
    }

    #[test]
    fn freed_tables_and_the_kernel() {
        let one = (0x5000, 1, Stride::Size4K);
        assert_eq!(
            encode(Whose::Pcid(9), one, false, 7),
            [(0x5007, 0, 0x9_0000)]
        );
        let top = (0xffff_ffff_ffff_f000, 1, Stride::Size4K);
        assert_eq!(
            encode(Whose::Anyone, top, false, 7),
            [(0xffff_ffff_ffff_f00d, 0, 0)]
        );
    }

    #[test]
    fn large_pages() {
        assert_eq!(
            encode(Whose::Pcid(9), (0x4020_0000, 3, Stride::Size2M), true, 1),
            [
                (0x4020_0017, 1 | 1 << 31, 0x9_0000),
                (0x4060_0017, 1 << 31, 0x9_0000)
            ]
        );
        // A page of 1 GiB may be held in pieces of 2 MiB.
        assert_eq!(
            encode(Whose::Pcid(9), (1 << 30, 1, Stride::Size1G), true, 511),
            [(1 << 30 | 0x17, 511 | 1 << 31, 0x9_0000)]
        );
        let pieces = encode(Whose::Pcid(9), (1 << 30, 2, Stride::Size1G), true, 7);
        assert_eq!(pieces.len(), 128);
        assert_eq!(pieces[127], (0xbf00_0017, 7 | 1 << 31, 0x9_0000));
    }

    #[test]
    fn no_instruction_reaches_over_the_hole() {
        let below = (0x7fff_ffff_d000, 3, Stride::Size4K);
        assert_eq!(
            encode(Whose::Pcid(9), below, true, 1),
            [
                (0x7fff_ffff_d017, 1, 0x9_0000),
                (0x7fff_ffff_f017, 0, 0x9_0000)
            ]
        );
        // What would have to be split there is refused before.
        let over = Range::new(Paging::X86_4_LEVEL, 0x7fff_ffff_f000, 2, Stride::Size4K);
        assert_eq!(over, Err(RangeError::NonCanonical));
    }
}
