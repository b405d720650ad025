//! Page tables: one set per address space, and the kernel's window that all of them share.
//!
//! Everything here changes tables in memory and nothing else.

use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use shootdown_workload::MapError;
use spin::{Mutex, MutexGuard};
use x86_64::structures::paging::PageTableFlags as Flags;

use crate::{
    arena::{PAGE, word},
    frames::{Frame, LARGE_PAGE},
};

/// First address of the window of each space: top-level slot 1.
pub const USER_WINDOW: u64 = 1 << 39;
/// Bytes of the window of each space.
pub const USER_WINDOW_LEN: u64 = 1 << 39;
/// First address of the kernel's window, mapped alike in all spaces: top-level slot 256.
pub const KERNEL_WINDOW: u64 = 0xffff_8000_0000_0000;

const KERNEL_SLOTS: [u64; 2] = [0, 256];
const ENTRIES: u64 = 512;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

unsafe extern "C" {
    static boot_pml4: u8;
    static window_pdpt: u8;
}

/// Physical address of the page tables the kernel boots with: only the kernel's mappings.
#[must_use]
pub fn kernel_root() -> u64 {
    (&raw const boot_pml4).expose_provenance() as u64
}

/// Whether the page tables of all spaces map this address alike: by global entries only.
pub(crate) fn is_shared(va: u64) -> bool {
    KERNEL_SLOTS.contains(&(va >> 39 & (ENTRIES - 1)))
}

/// The page tables of one space. Dropping them gives back every frame they own.
#[derive(Debug)]
pub struct Tables {
    root: Frame,
}

impl Tables {
    /// Tables that map what the kernel maps, and nothing in the window; `None` when no frame is left.
    #[must_use]
    pub fn new() -> Option<Self> {
        let root = Frame::table()?;
        for slot in KERNEL_SLOTS {
            root.store(slot * 8, word(kernel_root() + slot * 8).load(Relaxed));
        }
        Some(Self { root })
    }

    /// Physical address of the top-level table.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root.address()
    }

    /// The part of the tables that may be changed.
    pub fn user(&mut self) -> Mapper<'_> {
        Mapper {
            table: self.root(),
            level: 4,
            leaf: Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE,
            window: USER_WINDOW,
            _tables: core::marker::PhantomData,
        }
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.user().clear(USER_WINDOW, USER_WINDOW_LEN, &mut drop);
    }
}

static KERNEL: Mutex<()> = Mutex::new(());

/// The kernel's window, held until the guard is dropped.
#[derive(Debug)]
pub struct KernelWindow {
    _held: MutexGuard<'static, ()>,
}

impl KernelWindow {
    /// Takes the kernel's window.
    #[must_use]
    pub fn lock() -> Self {
        Self {
            _held: KERNEL.lock(),
        }
    }

    /// What may be changed: mappings made here are global.
    pub fn mapper(&mut self) -> Mapper<'_> {
        Mapper {
            table: (&raw const window_pdpt).expose_provenance() as u64,
            level: 3,
            leaf: Flags::PRESENT | Flags::WRITABLE | Flags::GLOBAL,
            window: KERNEL_WINDOW,
            _tables: core::marker::PhantomData,
        }
    }
}

/// Changes a window of page tables.
#[derive(Debug)]
pub struct Mapper<'a> {
    table: u64,
    /// Of `table`: 4 is the top; tables of level 1 hold the entries of 4 KiB pages.
    level: u32,
    leaf: Flags,
    window: u64,
    _tables: core::marker::PhantomData<&'a mut ()>,
}

impl Mapper<'_> {
    /// Maps `frame` at `va`, by a 2 MiB page where the frame has that size.
    ///
    /// # Errors
    /// [`MapError`] when something is mapped there, or no frame is left for a table; the frame is dropped.
    ///
    /// # Panics
    /// When `va` is outside of the window or not aligned to the frame's size.
    pub fn map(&mut self, va: u64, frame: Frame) -> Result<(), MapError> {
        assert!(
            va.is_multiple_of(frame.size()),
            "{va:#x} is not aligned to the page"
        );
        let leaf_level = if frame.size() == LARGE_PAGE { 2 } else { 1 };
        let mut table = self.table;
        for level in (leaf_level + 1..=self.level).rev() {
            let entry = word(self.entry(table, level, va));
            let value = entry.load(Relaxed);
            table = if value & Flags::PRESENT.bits() == 0 {
                let child = Frame::table().ok_or(MapError::NoFrame)?.into_entry();
                let flags = Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE;
                entry.store(child | flags.bits(), Release);
                child
            } else if is_leaf(value, level) {
                return Err(MapError::Occupied);
            } else {
                value & ADDRESS
            };
        }
        let entry = word(self.entry(table, leaf_level, va));
        if entry.load(Relaxed) & Flags::PRESENT.bits() != 0 {
            return Err(MapError::Occupied);
        }
        let size = if leaf_level == 2 {
            Flags::HUGE_PAGE
        } else {
            Flags::empty()
        };
        entry.store(frame.into_entry() | (self.leaf | size).bits(), Release);
        Ok(())
    }

    /// Clears the entry of the page at `va`, of either size, and returns its frame.
    ///
    /// # Panics
    /// When `va` is outside of the window.
    pub fn unmap(&mut self, va: u64) -> Option<Frame> {
        let entry = self.leaf_entry(va)?;
        Some(Frame::from_entry(word(entry).swap(0, AcqRel) & ADDRESS))
    }

    /// Lets the page at `va` be written, or not. Returns whether something is mapped there.
    ///
    /// # Panics
    /// When `va` is outside of the window.
    pub fn set_writable(&mut self, va: u64, writable: bool) -> bool {
        let Some(entry) = self.leaf_entry(va) else {
            return false;
        };
        if writable {
            word(entry).fetch_or(Flags::WRITABLE.bits(), AcqRel);
        } else {
            word(entry).fetch_and(!Flags::WRITABLE.bits(), AcqRel);
        }
        true
    }

    /// Clears all entries of the `len` bytes from `va` on, and detaches the tables that are empty then. Hands frames
    /// and tables to `freed`.
    ///
    /// # Panics
    /// When the range leaves the window, is not aligned, or cuts a large page.
    pub fn clear(&mut self, va: u64, len: u64, freed: &mut dyn FnMut(Frame)) {
        assert!(
            va.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && len > 0,
            "unaligned or empty range"
        );
        let last = va + (len - 1);
        self.check(va);
        self.check(last);
        self.clear_below(self.table, self.level, va, last, freed);
    }

    fn clear_below(
        &self,
        table: u64,
        level: u32,
        first: u64,
        last: u64,
        freed: &mut dyn FnMut(Frame),
    ) {
        let span = PAGE << (9 * (level - 1));
        let mut at = first;
        loop {
            let end = (at | (span - 1)).min(last);
            let entry = word(self.entry(table, level, at));
            let value = entry.load(Relaxed);
            if value & Flags::PRESENT.bits() == 0 {
            } else if is_leaf(value, level) {
                assert!(
                    end - at == span - 1,
                    "the range cuts a large page at {at:#x}"
                );
                freed(Frame::from_entry(entry.swap(0, AcqRel) & ADDRESS));
            } else {
                let child = value & ADDRESS;
                self.clear_below(child, level - 1, at, end, freed);
                if (0..ENTRIES).all(|index| word(child + index * 8).load(Relaxed) == 0) {
                    entry.store(0, Release);
                    freed(Frame::from_entry(child));
                }
            }
            if end == last {
                return;
            }
            at = end + 1;
        }
    }

    fn leaf_entry(&self, va: u64) -> Option<u64> {
        let mut table = self.table;
        for level in (1..=self.level).rev() {
            let entry = self.entry(table, level, va);
            let value = word(entry).load(Relaxed);
            if value & Flags::PRESENT.bits() == 0 {
                return None;
            }
            if is_leaf(value, level) {
                return Some(entry);
            }
            table = value & ADDRESS;
        }
        None
    }

    fn entry(&self, table: u64, level: u32, va: u64) -> u64 {
        self.check(va);
        table + ((va >> (12 + 9 * (level - 1))) % ENTRIES) * 8
    }

    fn check(&self, va: u64) {
        assert!(
            va.wrapping_sub(self.window) < USER_WINDOW_LEN,
            "{va:#x} is outside of the window"
        );
    }
}

fn is_leaf(value: u64, level: u32) -> bool {
    level == 1 || value & Flags::HUGE_PAGE.bits() != 0
}
