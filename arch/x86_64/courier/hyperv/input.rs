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
