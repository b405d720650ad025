//! A range in one word, for the ring of requests.
//!
//! ```text
//! 63                                   12 11          3 2      1 0
//! │ start address, bits 63:12            │ pages - 1   │ stride │ │
//! ```

use crate::{
    paging::Stride,
    range::Range,
    variant::{Broken, broken},
};

/// A range in one word, or everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payload(u64);

impl Payload {
    /// Everything: a stride that does not exist.
    pub(super) const ALL: Self = Self(3 << 1);

    /// One small page, by far the most frequent range: its address.
    #[inline(always)]
    pub(super) fn one_page(range: &Range) -> Option<Self> {
        (range.pages() == 1 && matches!(range.stride(), Stride::Size4K))
            .then(|| Self(range.start()))
    }

    /// The range, if it has at most `ceiling` pages, which is at most 512; else everything.
    #[inline]
    pub(super) fn of(start: u64, pages: u64, stride: Stride, ceiling: u64) -> Self {
        if pages > ceiling {
            return Self::ALL;
        }
        let stride = match stride {
            Stride::Size4K => 0,
            Stride::Size2M => 1,
            Stride::Size1G => 2,
            // Ranges of other granules can't be made for x86_64's paging.
            _ => return Self::ALL,
        };
        Self(start | (pages - 1) << 3 | stride << 1)
    }

    /// The page, if it is one small page.
    #[inline(always)]
    pub(super) fn page(self) -> Option<u64> {
        (self.0 & 0xfff == 0).then_some(self.0)
    }

    #[inline(always)]
    pub(super) const fn is_all(self) -> bool {
        self.0 == Self::ALL.0
    }

    /// The word for the ring of requests, unless it is everything.
    #[inline(always)]
    pub(super) fn some(self) -> Option<u64> {
        (!self.is_all()).then_some(self.0)
    }
}

/// Calls `f` for each page of the range.
#[inline(always)]
pub(super) fn for_each_page(payload: u64, mut f: impl FnMut(u64)) {
    if payload & 0xfff == 0 && !broken(Broken::RangeShort) {
        // As `one_page` made it.
        f(payload);
        return;
    }
    let mut addr = payload & !0xfff;
    let mut left = payload >> 3 & 0x1ff;
    if broken(Broken::RangeShort) {
        if left == 0 {
            return;
        }
        left -= 1;
    }
    let bytes = 0x1000 << (9 * (payload >> 1 & 3));
    loop {
        f(addr);
        if left == 0 {
            return;
        }
        left -= 1;
        addr = addr.wrapping_add(bytes);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::paging::Paging;

    fn pages(start: u64, pages: u64, stride: Stride) -> Option<Vec<u64>> {
        let range = Range::new(Paging::X86_5_LEVEL, start, pages, stride).unwrap();
        Payload::of(start, pages, stride, 512)
            .some()
            .map(|payload| {
                let mut out = Vec::new();
                for_each_page(payload, |page| out.push(page));
                assert!(out.iter().copied().eq(range.iter()));
                out
            })
    }

    #[test]
    fn every_page_and_no_other() {
        assert_eq!(pages(0x1000, 1, Stride::Size4K).unwrap(), [0x1000]);
        assert_eq!(
            pages(0xffff_ffff_ffff_e000, 2, Stride::Size4K).unwrap(),
            [0xffff_ffff_ffff_e000, 0xffff_ffff_ffff_f000]
        );
        assert_eq!(
            pages(0x20_0000, 3, Stride::Size2M).unwrap(),
            [0x20_0000, 0x40_0000, 0x60_0000]
        );
        assert_eq!(
            pages(1 << 30, 2, Stride::Size1G).unwrap(),
            [1 << 30, 2 << 30]
        );
        assert_eq!(pages(0x1000, 512, Stride::Size4K).unwrap().len(), 512);
        assert_eq!(pages(0x1000, 513, Stride::Size4K), None);
    }
}
