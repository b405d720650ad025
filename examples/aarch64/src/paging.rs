//! Translation tables: 4 KiB granule, 39-bit addresses, 4 KiB pages and 2 MiB blocks.
//!
//! Everything here stores entries and nothing else. Barriers and invalidation are the crate's business, as the kernel
//! asks for them through it.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_paging::descriptor::El1Attributes as Attributes;

use crate::boot;
use crate::frames::{Frame, Size, words};
use crate::lock::Lock;

/// Bits of a virtual address that the tables translate, in TTBR0 and in TTBR1.
pub const VA_BITS: u64 = 39;

/// The window under test of a space: one entry of the root.
pub const WINDOW: Range<u64> = 4 << 30..5 << 30;

/// The kernel's window, translated by TTBR1 for all spaces alike.
pub const KERNEL_WINDOW: Range<u64> = KERNEL_BASE..KERNEL_BASE + (1 << 30);

const KERNEL_BASE: u64 = u64::MAX << VA_BITS;
const ENTRIES: u64 = 512;
const OUTPUT_ADDRESS: u64 = ((1 << 48) - 1) & !0xfff;

const TABLE: u64 = (Attributes::VALID.bits() | Attributes::TABLE_OR_PAGE.bits()) as u64;
const DATA: u64 = (Attributes::VALID.bits()
    | Attributes::ACCESSED.bits()
    | Attributes::INNER_SHAREABLE.bits()
    | Attributes::ATTRIBUTE_INDEX_1.bits()
    | Attributes::PXN.bits()
    | Attributes::UXN.bits()) as u64;
const NON_GLOBAL: u64 = Attributes::NON_GLOBAL.bits() as u64;
const READ_ONLY: u64 = Attributes::READ_ONLY.bits() as u64;
const VALID: u64 = Attributes::VALID.bits() as u64;
const PAGE_OR_TABLE: u64 = Attributes::TABLE_OR_PAGE.bits() as u64;

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

/// A level of the tables, by the bits of an address that the levels below translate.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Level {
    shift: u64,
}

impl Level {
    const ROOT: Self = Self { shift: 30 };
    const BLOCKS: Self = Self { shift: 21 };
    const PAGES: Self = Self { shift: 12 };

    fn below_root(size: Size) -> &'static [Self] {
        match size {
            Size::Block => &[Self::BLOCKS],
            Size::Page => &[Self::BLOCKS, Self::PAGES],
        }
    }

    fn next(self) -> Self {
        if self == Self::ROOT {
            Self::BLOCKS
        } else {
            Self::PAGES
        }
    }

    /// The size of a leaf at this level. The root has none in a window.
    fn leaf(self) -> Size {
        if self == Self::PAGES {
            Size::Page
        } else {
            Size::Block
        }
    }

    fn index(self, va: u64) -> usize {
        (va >> self.shift & (ENTRIES - 1)) as usize
    }

    fn entry(self, table: &[AtomicU64], va: u64) -> &AtomicU64 {
        &table[self.index(va)]
    }
}

fn check(va: u64, size: Size) {
    assert!(
        in_a_window(va) && va.is_multiple_of(size.bytes()),
        "{va:#x} is no address for a {size:?} in a window"
    );
}

/// The table that an entry above level 3 points to.
fn next_table(entry: u64) -> Option<&'static [AtomicU64]> {
    (entry & TABLE == TABLE).then(|| words(entry & OUTPUT_ADDRESS, Size::Page))
}

fn is_leaf(entry: &AtomicU64, size: Size) -> bool {
    let kind = match size {
        Size::Page => VALID | PAGE_OR_TABLE,
        Size::Block => VALID,
    };
    entry.load(Ordering::Relaxed) & (VALID | PAGE_OR_TABLE) == kind
}

fn take_leaf(entry: &AtomicU64, size: Size) -> Option<Frame> {
    if !is_leaf(entry, size) {
        return None;
    }
    let old = entry.swap(0, Ordering::AcqRel);
    // SAFETY: the entry was made by `map` out of a frame of this size, and has just lost it.
    Some(unsafe { Frame::from_entry(old & OUTPUT_ADDRESS, size) })
}

/// Clears what `table` at `level` maps in `range`; `range` begins and ends inside what the table translates.
fn clear(table: &Frame, level: Level, range: &Range<u64>, freed: &mut dyn FnMut(Frame)) {
    let step = 1 << level.shift;
    let mut va = range.start;
    loop {
        let entry = level.entry(table.words(), va);
        let end = (va & !(step - 1)).wrapping_add(step);
        // The last address compares right even where the window ends at the top of the address space.
        let last = (end - 1).min(range.end - 1);
        if let Some(frame) = (level != Level::ROOT)
            .then(|| take_leaf(entry, level.leaf()))
            .flatten()
        {
            assert!(
                va.is_multiple_of(step) && last == end - 1,
                "{range:#x?} cuts through the leaf at {va:#x}"
            );
            freed(frame);
        } else if level != Level::PAGES && next_table(entry.load(Ordering::Relaxed)).is_some() {
            let old = entry.load(Ordering::Relaxed);
            // SAFETY: table entries are made out of table frames only; ownership goes back below, unless it is empty.
            let child = unsafe { Frame::from_entry(old & OUTPUT_ADDRESS, Size::Page) };
            clear(&child, level.next(), &(va..last + 1), freed);
            if child
                .words()
                .iter()
                .all(|entry| entry.load(Ordering::Relaxed) == 0)
            {
                entry.store(0, Ordering::Release);
                freed(child);
            } else {
                child.into_entry();
            }
        }
        if last == range.end - 1 {
            return;
        }
        va = last + 1;
    }
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
