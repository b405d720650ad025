//! Invalidation of address ranges by few instructions (FEAT_TLBIRANGE): planning and operands.
//!
//! One range operation covers `(NUM + 1) * 2^(5 * SCALE + 1)` pages of the granule. A plan covers exactly the pages
//! asked for: from the largest scale down, with operations by single address for an odd page, and for pages before
//! the first 64 KiB boundary where base addresses are given in 64 KiB units (FEAT_LPA2).

use crate::paging::{Granule, Stride};

/// The most pages that one plan covers by ranges: `(31 + 1) * 2^(5 * 3 + 1)`.
pub const MAX_RANGE_PAGES: u64 = 1 << 21;

/// One invalidation of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// By address: one page of the granule.
    Page {
        /// Its address.
        addr: u64,
    },
    /// By range.
    Range {
        /// The first address.
        base: u64,
        /// The exponent, 0 to 3.
        scale: u8,
        /// The factor less one, 0 to 31.
        num: u8,
    },
}

impl Step {
    /// How many pages of the granule it covers.
    pub const fn pages(self) -> u64 {
        match self {
            Self::Page { .. } => 1,
            Self::Range { scale, num, .. } => (num as u64 + 1) << unit_shift(scale),
        }
    }
}

/// `2^unit_shift` pages are the unit of a scale.
const fn unit_shift(scale: u8) -> u32 {
    5 * scale as u32 + 1
}

/// How base addresses of range operands are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseUnit {
    /// In pages of the granule.
    Page,
    /// In 64 KiB (TCR.DS with 4 KiB and 16 KiB granules, FEAT_LPA2).
    Kib64,
}

/// The steps that cover `pages` pages of `granule` from `start`, in ascending order.
#[derive(Clone, Debug)]
pub struct Plan {
    next: u64,
    left: u64,
    page_shift: u32,
    unit: BaseUnit,
}

impl Plan {
    /// A plan for at most [`MAX_RANGE_PAGES`] pages; `start` is a multiple of the granule.
    pub const fn new(granule: Granule, unit: BaseUnit, start: u64, pages: u64) -> Self {
        Self {
            next: start,
            left: pages,
            page_shift: page_shift(granule),
            unit,
        }
    }
}

impl Iterator for Plan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.left == 0 {
            return None;
        }
        let addr = self.next;
        let base_fits = self.unit == BaseUnit::Page || addr.is_multiple_of(1 << 16);
        let step = if self.left == 1 || !base_fits {
            Step::Page { addr }
        } else {
            // The largest unit that fits at least once; never more units than NUM can say.
            let mut scale = 3;
            while self.left >> unit_shift(scale) == 0 {
                scale -= 1;
            }
            let units = (self.left >> unit_shift(scale)).min(32);
            Step::Range {
                base: addr,
                scale,
                num: (units - 1) as u8,
            }
        };
        self.left -= step.pages();
        self.next = addr.wrapping_add(step.pages() << self.page_shift);
        Some(step)
    }
}

const fn page_shift(granule: Granule) -> u32 {
    match granule {
        Granule::Size4K => 12,
        Granule::Size16K => 14,
        Granule::Size64K => 16,
    }
}

/// The code of a granule in operands: 1 is 4 KiB, 2 is 16 KiB, 3 is 64 KiB.
const fn granule_code(granule: Granule) -> u64 {
    match granule {
        Granule::Size4K => 1,
        Granule::Size16K => 2,
        Granule::Size64K => 3,
    }
}

/// The level of a leaf of `stride`: 3 is a page of the granule.
pub const fn leaf_level(stride: Stride) -> u8 {
    match stride {
        Stride::Size4K | Stride::Size16K | Stride::Size64K => 3,
        Stride::Size2M | Stride::Size32M | Stride::Size512M => 2,
        Stride::Size1G => 1,
    }
}

/// Bits 47:44 of an operand by address: the level that every entry of the range had (FEAT_TTL). Where entries of several
/// levels may be cached they stay 0.
///
/// ```
/// use shootdown::{Granule, Stride, aarch64::range::level_hint};
///
/// assert_eq!(level_hint(Granule::Size4K, Stride::Size2M), 0b0110 << 44);
/// ```
pub const fn level_hint(granule: Granule, stride: Stride) -> u64 {
    (granule_code(granule) << 2 | leaf_level(stride) as u64) << 44
}

/// The operand of an invalidation by range (Arm ARM, "TLBI RVAE1IS"): bits 63:48 the ASID, 47:46 the granule, 45:44 SCALE,
/// 43:39 NUM, 38:37 the level hint (0: any level), 36:0 the base address in pages of the granule or in 64 KiB.
///
/// ```
/// use shootdown::{Granule, aarch64::range::{BaseUnit, by_range}};
///
/// let operand = by_range(7, Granule::Size4K, BaseUnit::Page, 0x4000_0000, 1, 2, 0);
/// assert_eq!(operand, 0x0007_5100_0004_0000);
/// ```
pub const fn by_range(
    asid: u16,
    granule: Granule,
    unit: BaseUnit,
    base: u64,
    scale: u8,
    num: u8,
    level: u8,
) -> u64 {
    let shift = match unit {
        BaseUnit::Page => page_shift(granule),
        BaseUnit::Kib64 => 16,
    };
    (asid as u64) << 48
        | granule_code(granule) << 46
        | (scale as u64) << 44
        | (num as u64) << 39
        | (level as u64) << 37
        | (base >> shift) & ((1 << 37) - 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const GRANULES: [Granule; 3] = [Granule::Size4K, Granule::Size16K, Granule::Size64K];

    /// Decodes an operand as the architecture says and gives its first address and its end, both in pages.
    fn decode(operand: u64, granule: Granule, unit: BaseUnit) -> (u64, u64) {
        let scale = operand >> 44 & 3;
        let num = operand >> 39 & 0x1f;
        assert_eq!(operand >> 46 & 3, granule_code(granule));
        let base = operand & ((1 << 37) - 1);
        let base = match unit {
            BaseUnit::Page => base,
            BaseUnit::Kib64 => base << 16 >> page_shift(granule),
        };
        (base, base + (num + 1) * (1 << (5 * scale + 1)))
    }

    /// The plan covers exactly `pages` pages from page `first`, without gap, overlap or more.
    fn check(granule: Granule, unit: BaseUnit, first: u64, pages: u64) {
        let shift = page_shift(granule);
        let mut at = first;
        let mut steps = 0;
        for step in Plan::new(granule, unit, first << shift, pages) {
            steps += 1;
            match step {
                Step::Page { addr } => {
                    assert_eq!(addr >> shift, at);
                    at += 1;
                }
                Step::Range { base, scale, num } => {
                    assert!(scale <= 3 && num <= 31);
                    let operand = by_range(1, granule, unit, base, scale, num, 0);
                    let (start, end) = decode(operand, granule, unit);
                    assert_eq!(start, at, "{granule:?} {unit:?} {first} {pages}");
                    at = end;
                }
            }
        }
        assert_eq!(at, first + pages, "{granule:?} {unit:?} {first} {pages}");
        // At most one range a scale, one odd page, and the way to a 64 KiB boundary.
        assert!(steps <= 4 + 1 + 15, "{steps} steps for {pages} pages");
    }

    #[test]
    fn every_count_up_to_the_second_scale() {
        for granule in GRANULES {
            for pages in 1..=5000 {
                check(granule, BaseUnit::Page, 0x1_2345, pages);
            }
        }
    }

    #[test]
    fn every_count_near_each_boundary() {
        for granule in GRANULES {
            for unit in [BaseUnit::Page, BaseUnit::Kib64] {
                for scale in 0..4 {
                    for num in 0..32 {
                        let boundary = (num + 1) << unit_shift(scale);
                        for pages in
                            boundary - 2.min(boundary - 1)..=(boundary + 2).min(MAX_RANGE_PAGES)
                        {
                            for first in [0, 1, 0x1_2345] {
                                check(granule, unit, first, pages);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_count_there_is() {
        for pages in 1..=MAX_RANGE_PAGES {
            check(Granule::Size4K, BaseUnit::Page, 0x8_0000, pages);
        }
    }

    #[test]
    fn the_largest_range_is_one_instruction() {
        let mut plan = Plan::new(Granule::Size4K, BaseUnit::Page, 0, MAX_RANGE_PAGES);
        let largest = Step::Range {
            base: 0,
            scale: 3,
            num: 31,
        };
        assert_eq!(plan.next(), Some(largest));
        assert_eq!(plan.next(), None);
    }

    #[test]
    fn a_range_before_a_boundary_starts_page_by_page() {
        let mut plan = Plan::new(Granule::Size4K, BaseUnit::Kib64, 0xe000, 6);
        assert_eq!(plan.next(), Some(Step::Page { addr: 0xe000 }));
        assert_eq!(plan.next(), Some(Step::Page { addr: 0xf000 }));
        let rest = Step::Range {
            base: 0x1_0000,
            scale: 0,
            num: 1,
        };
        assert_eq!(plan.next(), Some(rest));
        assert_eq!(plan.next(), None);
    }

    #[test]
    fn high_addresses_fill_the_base_field_only() {
        let operand = by_range(
            0,
            Granule::Size4K,
            BaseUnit::Page,
            0xffff_8000_0000_0000,
            0,
            0,
            3,
        );
        assert_eq!(
            operand,
            1 << 46 | 3 << 37 | 0x18_0000_0000 & ((1 << 37) - 1)
        );
    }
}
