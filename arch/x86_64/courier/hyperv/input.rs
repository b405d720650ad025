//! [`InputPage`]: where a hypercall finds its operands.

use core::sync::atomic::{AtomicU64 as Word, Ordering::Relaxed};

use crate::{paging::Stride, range::Range};

/// Words of a page.
const WORDS: usize = 512;

/// A CPU's page for the operands of hypercalls. The kernel places it, see
/// [`HyperVPlatform::input`](super::HyperVPlatform::input). The operands of a call must not cross a page, so it
/// is one.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct InputPage {
    words: [Word; WORDS],
}

/// Pages that one entry of a list may name beyond the first.
const MAX_ADDITIONAL: u64 = 4095;

impl InputPage {
    /// An empty page.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            words: [const { Word::new(0) }; WORDS],
        }
    }

    /// The word at byte offset `8 * index`: for who stands in for the hypervisor.
    ///
    /// # Panics
    ///
    /// If `index` is not below 512.
    pub fn word(&self, index: usize) -> u64 {
        self.words[index].load(Relaxed)
    }

    pub(super) fn set(&self, index: usize, value: u64) {
        self.words[index].store(value, Relaxed);
    }

    /// How many words there are from `first` on.
    pub(super) const fn room(first: usize) -> usize {
        WORDS - first
    }

    /// Writes the entries of a list for `range` from word `first` on, and says how many; `None` if there is no room for all.
    ///
    /// An entry is a page's address and, in the low 12 bits, how many further pages follow it: so one entry has up to
    /// 4096 pages of 4 KiB. A large page is dropped as a whole by any of its addresses (TLFS,
    /// HvCallFlushVirtualAddressList), so it is one entry.
    pub(super) fn list(&self, first: usize, range: &Range, room: usize) -> Option<usize> {
        let small = range.stride() == Stride::Size4K;
        let per_entry = if small { MAX_ADDITIONAL + 1 } else { 1 };
        // Rounded up: the last entry need not be full.
        let entries = range.pages().div_ceil(per_entry);
        if entries > room as u64 {
            return None;
        }
        let mut addr = range.start();
        let mut left = range.pages();
        for index in 0..entries as usize {
            let pages = left.min(per_entry);
            if let Some(word) = self.words.get(first + index) {
                word.store(addr | (pages - 1), Relaxed);
            }
            left -= pages;
            // Past the last page of the address space it wraps, and is not used.
            addr = addr.wrapping_add(pages * range.stride().bytes());
        }
        Some(entries as usize)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::paging::Paging;

    fn range(start: u64, pages: u64, stride: Stride) -> Range {
        Range::new(Paging::X86_4_LEVEL, start, pages, stride).unwrap()
    }

    fn list(range: &Range, first: usize, room: usize) -> Option<Vec<u64>> {
        let page = InputPage::new();
        let entries = page.list(first, range, room)?;
        // What stood beyond the list is as it was.
        assert!((first + entries..WORDS).all(|index| page.word(index) == 0));
        Some(
            (first..first + entries)
                .map(|index| page.word(index))
                .collect(),
        )
    }

    /// The pages of 4 KiB that an entry names.
    fn named(entry: u64) -> impl Iterator<Item = u64> {
        (0..=entry & 0xfff).map(move |page| (entry & !0xfff).wrapping_add(page << 12))
    }

    #[test]
    fn golden_entries() {
        let small = |start, pages| list(&range(start, pages, Stride::Size4K), 3, 509).unwrap();
        assert_eq!(small(0x5000, 1), [0x5000]);
        assert_eq!(small(0x5000, 2), [0x5001]);
        assert_eq!(small(0x5000, 4096), [0x5fff]);
        assert_eq!(small(0x5000, 4097), [0x5fff, 0x0100_5000]);
        assert_eq!(small(0x5000, 8192), [0x5fff, 0x0100_5fff]);
        let top = 0xffff_ffff_ffff_f000;
        assert_eq!(small(top, 1), [top]);
        let large = list(&range(1 << 30, 2, Stride::Size1G), 3, 509).unwrap();
        assert_eq!(large, [1 << 30, 2 << 30]);
    }

    #[test]
    fn as_many_as_fit_and_not_one_more() {
        for (pages, fits) in [(509 * 4096, true), (509 * 4096 + 1, false)] {
            let small = list(&range(0, pages, Stride::Size4K), 3, InputPage::room(3));
            assert_eq!(small.is_some(), fits, "{pages}");
        }
        for (pages, fits) in [(444, true), (445, false)] {
            // After a full set: 64 banks.
            let large = list(&range(0, pages, Stride::Size2M), 68, InputPage::room(68));
            assert_eq!(large.is_some(), fits, "{pages}");
        }
    }

    proptest! {
        /// Against brute force: every page once, and no other.
        #[test]
        fn every_small_page_once(first in 0_u64..1 << 30, pages in 1_u64..20_000, high: bool) {
            let base = if high { 0xffff_8000_0000_0000 } else { 0 };
            let range = range(base + (first << 12), pages, Stride::Size4K);
            let entries = list(&range, 3, 509).unwrap();
            let all: Vec<_> = entries.into_iter().flat_map(named).collect();
            prop_assert!(all.into_iter().eq(range.iter()));
        }

        /// One address in each large page, and no more than the page in which it is.
        #[test]
        fn every_large_page_once(first in 0_u64..1000, pages in 1_u64..509, huge: bool) {
            let stride = if huge { Stride::Size1G } else { Stride::Size2M };
            let range = range(first * stride.bytes(), pages, stride);
            let entries = list(&range, 3, 509).unwrap();
            prop_assert!(entries.into_iter().eq(range.iter()));
        }
    }
}
