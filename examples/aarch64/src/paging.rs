//! Translation tables: 4 KiB granule, 39-bit addresses, 4 KiB pages and 2 MiB blocks.
//!
//! Everything here stores entries and nothing else. Barriers and invalidation are the crate's business, as the kernel
//! asks for them through it.

mod clear;
mod entry;
mod level;

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::boot;
use crate::frames::{Frame, Size};
use crate::lock::Lock;
use clear::clear;
use entry::{
    DATA, NON_GLOBAL, PAGE_OR_TABLE, READ_ONLY, TABLE, VALID, is_leaf, next_table, take_leaf,
};
use level::Level;

/// Bits of a virtual address that the tables translate, in TTBR0 and in TTBR1.
pub const VA_BITS: u64 = 39;

/// The window under test of a space: one entry of the root.
pub const WINDOW: Range<u64> = 4 << 30..5 << 30;

/// The kernel's window, translated by TTBR1 for all spaces alike.
pub const KERNEL_WINDOW: Range<u64> = KERNEL_BASE..KERNEL_BASE + (1 << 30);

const KERNEL_BASE: u64 = u64::MAX << VA_BITS;

/// Whether `va` lies in a window whose translations lead to pool frames only.
#[must_use]
pub fn in_a_window(va: u64) -> bool {
    WINDOW.contains(&va) || KERNEL_WINDOW.contains(&va)
}

/// What a leaf entry allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads and writes.
    ReadWrite,
    /// Reads; a write raises a permission fault.
    ReadOnly,
}

/// Why nothing was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// An entry in the way is valid.
    Occupied,
    /// The table pool is empty.
    NoFrame,
}

/// A tree of translation tables that owns its tables below the identity map and the frames they map.
///
/// Dropping it gives everything back: only when no CPU can use it any more.
#[derive(Debug)]
pub struct Tables {
    root: Frame,
    /// The bits that tell the leafs of a space from the kernel's.
    leaf: u64,
}

impl Tables {
    /// The tables of a new space: the kernel's identity map, nothing in the window. Its leafs are not global.
    /// `None` when the table pool is empty.
    #[must_use]
    pub fn of_space() -> Option<Self> {
        let root = Frame::table()?;
        for (entry, &shared) in root.words().iter().zip(&boot::IDENTITY) {
            entry.store(shared, Ordering::Relaxed);
        }
        Some(Self {
            root,
            leaf: DATA | NON_GLOBAL,
        })
    }

    fn of_kernel() -> Option<Self> {
        let root = Frame::table()?;
        Some(Self { root, leaf: DATA })
    }

    /// Physical address of the root.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root.address()
    }

    /// Maps `frame` at `va`, as a page or a block as its size is.
    ///
    /// # Errors
    /// [`MapError`]; `frame` is dropped then.
    ///
    /// # Panics
    /// When `va` is not in a window, or not aligned to the frame's size.
    pub fn map(&mut self, va: u64, frame: Frame, access: Access) -> Result<(), MapError> {
        check(va, frame.size());
        let leaf = self.leaf;
        let entry = self.leaf_entry_or_make_tables(va, frame.size())?;
        if entry.load(Ordering::Relaxed) & VALID != 0 {
            return Err(MapError::Occupied);
        }
        let kind = match frame.size() {
            Size::Page => PAGE_OR_TABLE,
            Size::Block => 0,
        };
        let read_only = if access == Access::ReadOnly {
            READ_ONLY
        } else {
            0
        };
        entry.store(
            frame.into_entry() | leaf | kind | read_only,
            Ordering::Release,
        );
        Ok(())
    }

    /// Clears the leaf at `va`. The frame must live until the flush of the leaf completed.
    ///
    /// # Panics
    /// When `va` is not in a window, or not aligned to `size`.
    pub fn unmap(&mut self, va: u64, size: Size) -> Option<Frame> {
        check(va, size);
        take_leaf(self.leaf_entry(va, size)?, size)
    }

    /// Changes what the leaf at `va` allows, and returns the entry before and after. `None` when there is no leaf.
    ///
    /// # Panics
    /// When `va` is not in a window, or not aligned to `size`.
    pub fn protect(&mut self, va: u64, size: Size, access: Access) -> Option<(u64, u64)> {
        check(va, size);
        let entry = self
            .leaf_entry(va, size)
            .filter(|entry| is_leaf(entry, size))?;
        let old = entry.load(Ordering::Relaxed);
        let new = match access {
            Access::ReadWrite => old & !READ_ONLY,
            Access::ReadOnly => old | READ_ONLY,
        };
        entry.store(new, Ordering::Release);
        Some((old, new))
    }

    /// Clears all leafs in `range` and detaches the tables that are empty then. Frames and tables go to `freed`; they
    /// must live until a flush that says *tables freed* completed.
    ///
    /// # Panics
    /// When `range` leaves the window, or cuts through a leaf.
    pub fn unmap_with_tables(&mut self, range: Range<u64>, freed: &mut dyn FnMut(Frame)) {
        if range.is_empty() {
            return;
        }
        assert!(
            in_a_window(range.start) && in_a_window(range.end - 1),
            "{range:#x?} leaves the window"
        );
        clear(&self.root, Level::ROOT, &range, freed);
    }

    fn leaf_entry(&self, va: u64, size: Size) -> Option<&AtomicU64> {
        let mut entry = Level::ROOT.entry(self.root.words(), va);
        for level in Level::below_root(size) {
            entry = level.entry(next_table(entry.load(Ordering::Relaxed))?, va);
        }
        Some(entry)
    }

    fn leaf_entry_or_make_tables(&mut self, va: u64, size: Size) -> Result<&AtomicU64, MapError> {
        let mut entry = Level::ROOT.entry(self.root.words(), va);
        for level in Level::below_root(size) {
            let mut value = entry.load(Ordering::Relaxed);
            if value & VALID == 0 {
                let table = Frame::table().ok_or(MapError::NoFrame)?;
                value = table.into_entry() | TABLE;
                // Release: a walk that sees the entry sees the zeroes of the table.
                entry.store(value, Ordering::Release);
            }
            entry = level.entry(next_table(value).ok_or(MapError::Occupied)?, va);
        }
        Ok(entry)
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        for window in [WINDOW, KERNEL_WINDOW] {
            let index = Level::ROOT.index(window.start);
            if next_table(self.root.words()[index].load(Ordering::Relaxed)).is_some() {
                clear(&self.root, Level::ROOT, &window, &mut drop);
            }
        }
    }
}

fn check(va: u64, size: Size) {
    assert!(
        in_a_window(va) && va.is_multiple_of(size.bytes()),
        "{va:#x} is no address for a {size:?} in a window"
    );
}

static KERNEL: Lock<Option<Tables>> = Lock::new(None);

/// Calls `with` with the tables of the kernel window, under their lock.
///
/// # Panics
/// When the table pool had no frame left for their root.
pub fn with_kernel_tables<R>(with: impl FnOnce(&mut Tables) -> R) -> R {
    let mut kernel = KERNEL.lock();
    let tables = match &mut *kernel {
        Some(tables) => tables,
        empty => empty.insert(Tables::of_kernel().expect("the table pool is full at start")),
    };
    with(tables)
}

/// Physical address of the root that TTBR1 points to.
#[must_use]
pub fn kernel_root() -> u64 {
    with_kernel_tables(|tables| tables.root())
}
