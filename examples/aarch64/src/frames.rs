//! Physical memory: owned frames out of fixed pools.
//!
//! Pool memory is accessed as atomic words only, because stale translations may be read while a frame has a new owner.

use core::sync::atomic::{AtomicU64, Ordering};

use shootdown_workload::canary::POISON;

use crate::lock::Lock;

/// The size of a frame, and of the leaf entry that maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 4 KiB: a page at level 3, or a table.
    Page,
    /// 2 MiB: a block at level 2.
    Block,
}

impl Size {
    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Page => 4 << 10,
            Self::Block => 2 << 20,
        }
    }
}

/// A pool of equal frames. Frames given back last are handed out first, so that reuse comes soon.
struct Pool<const N: usize> {
    base: u64,
    size: Size,
    free: Lock<Stack<N>>,
}

struct Stack<const N: usize> {
    /// How many frames were ever handed out: those from here on were never used, and are not on the stack.
    fresh: usize,
    depth: usize,
    indices: [u16; N],
}

const RAM: u64 = 0x4000_0000;
const MIB: u64 = 1 << 20;

static TABLES: Pool<4096> = Pool::new(RAM + 32 * MIB, Size::Page);
static DATA: Pool<14336> = Pool::new(RAM + 48 * MIB, Size::Page);
static BLOCKS: Pool<8> = Pool::new(RAM + 104 * MIB, Size::Block);

impl<const N: usize> Pool<N> {
    const fn new(base: u64, size: Size) -> Self {
        Self {
            base,
            size,
            free: Lock::new(Stack {
                fresh: 0,
                depth: 0,
                indices: [0; N],
            }),
        }
    }

    /// Takes a frame, and says whether it was in use before.
    fn take(&self) -> Option<(Frame, bool)> {
        let mut free = self.free.lock();
        let (index, used) = if free.depth > 0 {
            free.depth -= 1;
            (usize::from(free.indices[free.depth]), true)
        } else if free.fresh < N {
            free.fresh += 1;
            (free.fresh - 1, false)
        } else {
            return None;
        };
        let frame = Frame {
            address: self.base + index as u64 * self.size.bytes(),
            size: self.size,
        };
        Some((frame, used))
    }

    fn give(&self, address: u64) {
        let mut free = self.free.lock();
        let depth = free.depth;
        free.indices[depth] = ((address - self.base) / self.size.bytes()) as u16;
        free.depth += 1;
    }

    fn available(&self) -> usize {
        let free = self.free.lock();
        N - free.fresh + free.depth
    }

    fn contains(&self, address: u64) -> bool {
        let end = self.base + N as u64 * self.size.bytes();
        (self.base..end).contains(&address) && address.is_multiple_of(self.size.bytes())
    }
}

/// A physical frame with one owner. Dropping it fills it with [`POISON`] and gives it back to its pool.
#[derive(Debug)]
pub struct Frame {
    address: u64,
    size: Size,
}

impl Frame {
    /// Takes a frame for data; all its words hold [`POISON`]. `None` when the pool is empty.
    ///
    /// # Panics
    /// When something wrote to the frame while it was free.
    #[must_use]
    pub fn data(size: Size) -> Option<Self> {
        let (frame, used) = match size {
            Size::Page => DATA.take()?,
            Size::Block => BLOCKS.take()?,
        };
        if used {
            for (index, word) in frame.words().iter().enumerate() {
                let value = word.load(Ordering::Relaxed);
                assert!(
                    value == POISON,
                    "free frame {:#x} holds {value:#x} in word {index}",
                    frame.address
                );
            }
        } else {
            frame.fill(POISON);
        }
        Some(frame)
    }

    /// Takes a zeroed 4 KiB frame for a translation table. `None` when the pool is empty.
    #[must_use]
    pub fn table() -> Option<Self> {
        let (frame, _) = TABLES.take()?;
        frame.fill(0);
        Some(frame)
    }

    /// Physical address, in bytes.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The frame's size.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// The frame's words, through the kernel's own mapping.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        words(self.address, self.size)
    }

    /// Writes `value` to all words.
    pub fn fill(&self, value: u64) {
        for word in self.words() {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Gives the ownership to a translation-table entry.
    pub(crate) fn into_entry(self) -> u64 {
        let address = self.address;
        core::mem::forget(self);
        address
    }

    /// Takes the ownership back out of an entry.
    ///
    /// # Safety
    /// The entry held what [`into_entry`](Self::into_entry) returned for a frame of this size, and nothing else takes
    /// the ownership out of it.
    pub(crate) unsafe fn from_entry(address: u64, size: Size) -> Self {
        Self { address, size }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.fill(POISON);
        match self.size {
            Size::Block => BLOCKS.give(self.address),
            Size::Page if DATA.contains(self.address) => DATA.give(self.address),
            Size::Page => TABLES.give(self.address),
        }
    }
}

/// The words of a frame of a pool, whoever owns it.
///
/// # Panics
/// When no pool has such a frame.
pub(crate) fn words(address: u64, size: Size) -> &'static [AtomicU64] {
    assert!(
        match size {
            Size::Page => DATA.contains(address) || TABLES.contains(address),
            Size::Block => BLOCKS.contains(address),
        },
        "{address:#x} is no frame of a pool"
    );
    // SAFETY: pools are RAM that the kernel's identity map covers and that nothing else lies in. It is accessed as
    // atomic words only, which any number of CPUs may do at once.
    unsafe { core::slice::from_raw_parts(address as *const AtomicU64, size.bytes() as usize / 8) }
}

/// Frames of the pools that nobody owns, for leak checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, defmt::Format)]
pub struct Available {
    /// 4 KiB frames for tables.
    pub tables: usize,
    /// 4 KiB frames for data.
    pub pages: usize,
    /// 2 MiB frames.
    pub blocks: usize,
}

/// Counts the frames that nobody owns.
#[must_use]
pub fn available() -> Available {
    Available {
        tables: TABLES.available(),
        pages: DATA.available(),
        blocks: BLOCKS.available(),
    }
}
