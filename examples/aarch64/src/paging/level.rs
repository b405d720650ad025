//! The levels of the tables.

use core::sync::atomic::AtomicU64;

use crate::frames::Size;

const ENTRIES: u64 = 512;

/// A level of the tables, by the bits of an address that the levels below translate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    shift: u64,
}

impl Level {
    pub(super) const ROOT: Self = Self { shift: 30 };
    pub(super) const BLOCKS: Self = Self { shift: 21 };
    pub(super) const PAGES: Self = Self { shift: 12 };

    pub(super) fn below_root(size: Size) -> &'static [Self] {
        match size {
            Size::Block => &[Self::BLOCKS],
            Size::Page => &[Self::BLOCKS, Self::PAGES],
        }
    }

    pub(super) fn next(self) -> Self {
        if self == Self::ROOT {
            Self::BLOCKS
        } else {
            Self::PAGES
        }
    }

    /// The size of a leaf at this level. The root has none in a window.
    pub(super) fn leaf(self) -> Option<Size> {
        match self {
            Self::PAGES => Some(Size::Page),
            Self::BLOCKS => Some(Size::Block),
            _ => None,
        }
    }

    /// What one entry translates.
    pub(super) fn bytes(self) -> u64 {
        1 << self.shift
    }

    pub(super) fn index(self, va: u64) -> usize {
        (va >> self.shift & (ENTRIES - 1)) as usize
    }

    pub(super) fn entry(self, table: &[AtomicU64], va: u64) -> &AtomicU64 {
        &table[self.index(va)]
    }
}
