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

/// The range in one word, if it has at most `ceiling` pages, which is at most 512.
#[inline]
pub(super) fn encode(range: &Range, ceiling: u64) -> Option<u64> {
    if range.pages() > ceiling {
        return None;
    }
    let stride = match range.stride() {
        Stride::Size4K => 0,
        Stride::Size2M => 1,
        Stride::Size1G => 2,
        // Ranges of other granules can't be made for x86_64's paging.
        _ => return None,
    };
    Some(range.start() | (range.pages() - 1) << 3 | stride << 1)
}

/// Calls `f` for each page of the range.
#[inline]
pub(super) fn for_each_page(payload: u64, mut f: impl FnMut(u64)) {
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
        encode(&range, 512).map(|payload| {
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
