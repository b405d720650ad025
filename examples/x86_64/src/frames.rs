//! Owned physical frames.

use core::{fmt, sync::atomic::Ordering::Relaxed};

use crate::arena::{Arena, PAGE, Pool, word};

/// Bytes of a large page.
pub const LARGE_PAGE: u64 = 2 * 1024 * 1024;

const DATA_FRAMES: usize = 4096;
const TABLE_FRAMES: usize = 1024;
const LARGE_FRAMES: usize = 4;
/// One more than the frames need: the arena is not aligned to large pages.
const LARGE_ARENA: usize = (LARGE_FRAMES + 1) * 512;

static DATA_ARENA: Arena<DATA_FRAMES> = Arena::new();
static DATA: Pool<DATA_FRAMES, DATA_FRAMES> = Pool::new(&DATA_ARENA, PAGE);
static TABLE_ARENA: Arena<TABLE_FRAMES> = Arena::new();
static TABLES: Pool<TABLE_FRAMES, TABLE_FRAMES> = Pool::new(&TABLE_ARENA, PAGE);
static LARGE: Arena<LARGE_ARENA> = Arena::new();
static LARGE_POOL: Pool<LARGE_ARENA, LARGE_FRAMES> = Pool::new(&LARGE, LARGE_PAGE);

/// Frames that can still be taken, of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Frames for data.
    pub data: usize,
    /// Frames for page tables.
    pub tables: usize,
    /// Frames for 2 MiB pages.
    pub large: usize,
}

/// How many frames can still be taken: a run that leaks none ends with the numbers it began with.
#[must_use]
pub fn available() -> Available {
    Available {
        data: DATA.available(),
        tables: TABLES.available(),
        large: LARGE_POOL.available(),
    }
}

/// A physical frame with one owner. Dropping it poisons it and gives it back to its pool at once.
///
/// Data frames, frames for page tables and large frames come from pools of their own, so that no access through a
/// stale translation of a data page ever meets a page table.
pub struct Frame {
    address: u64,
}

impl Frame {
    /// A 4 KiB frame for data, filled with poison; `None` when there is none left.
    ///
    /// # Panics
    /// When something wrote to the frame while it was free.
    #[must_use]
    pub fn data() -> Option<Self> {
        DATA.take().map(|address| Self { address })
    }

    /// A 2 MiB frame for data; the first cache line of each 4 KiB holds poison.
    ///
    /// # Panics
    /// When something wrote to the frame while it was free.
    #[must_use]
    pub fn large() -> Option<Self> {
        LARGE_POOL.take().map(|address| Self { address })
    }

    /// A frame for a page table, all zeros.
    pub(crate) fn table() -> Option<Self> {
        let frame = Self {
            address: TABLES.take()?,
        };
        for at in (frame.address..frame.address + PAGE).step_by(8) {
            word(at).store(0, Relaxed);
        }
        Some(frame)
    }

    /// Physical address, in bytes.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes of the frame.
    #[must_use]
    pub fn size(&self) -> u64 {
        if LARGE_POOL.contains(self.address) {
            LARGE_PAGE
        } else {
            PAGE
        }
    }

    /// The word at `offset` bytes, read through the kernel's identity mapping.
    ///
    /// # Panics
    /// When there is no aligned word at that offset.
    #[must_use]
    pub fn load(&self, offset: u64) -> u64 {
        word(self.at(offset)).load(Relaxed)
    }

    /// Writes the word at `offset` bytes through the kernel's identity mapping.
    ///
    /// # Panics
    /// When there is no aligned word at that offset.
    pub fn store(&self, offset: u64, value: u64) {
        word(self.at(offset)).store(value, Relaxed);
    }

    fn at(&self, offset: u64) -> u64 {
        assert!(
            offset < self.size() && offset.is_multiple_of(8),
            "no word at {offset:#x}"
        );
        self.address + offset
    }

    /// Gives the frame to a page-table entry, which now owns it.
    pub(crate) fn into_entry(self) -> u64 {
        core::mem::ManuallyDrop::new(self).address
    }

    /// Takes the frame back from an entry that owned it, and does no longer.
    pub(crate) fn from_entry(address: u64) -> Self {
        Self { address }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if DATA.contains(self.address) {
            DATA.give_back(self.address);
        } else if TABLES.contains(self.address) {
            TABLES.give_back(self.address);
        } else {
            LARGE_POOL.give_back(self.address);
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:#x})", self.address)
    }
}
