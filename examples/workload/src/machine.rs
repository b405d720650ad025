//! What a kernel supplies: CPUs, frames, page tables and verified accesses.
//!
//! Nothing behind these traits flushes a TLB. Invalidation is the crate's business alone, so a read that returns
//! something old is the crate's fault (or the counter-proof's intention).

use core::fmt;

use shootdown::TlbFlusher;

/// Bytes of a page and of a frame.
pub const PAGE: u64 = 4096;

/// A machine whose CPUs all run this kernel.
pub trait Machine: Sync {
    /// The architecture as the report names it, such as `x86_64`.
    const ARCH: &'static str;

    /// First virtual address of the window under test. It is the start of a top-level page-table slot of its own
    /// and holds no translation but those made through [`PageTables`].
    const WINDOW: u64;

    /// Bytes of the window under test; at least 1 GiB.
    const WINDOW_LEN: u64;

    /// The backend under test.
    type Tlb: TlbFlusher + 'static;

    /// An owned physical frame.
    type Frame: Frame;

    /// The page tables of one address space.
    type Tables: PageTables<Frame = Self::Frame>;

    /// The flusher, initialized. All CPUs are online, with interrupts on and no space loaded.
    fn tlb(&self) -> &'static Self::Tlb;

    /// How many CPUs take part. CPUs are numbered from 0.
    fn cpus(&self) -> usize;

    /// The CPU that runs the caller.
    fn this_cpu(&self) -> usize;

    /// Tells the processor that the caller spins (x86: `pause`, arm64: `yield`).
    fn relax(&self);

    /// Runs `work(cpu)` on every CPU at the same time, with interrupts on, and returns when all have returned.
    /// Called on CPU 0 only.
    fn on_all_cpus(&self, work: &(dyn Fn(usize) + Sync));

    /// Takes a frame for data out of the pool, or `None` when the pool is empty.
    ///
    /// The pool is separate from that of the page tables, so that a write through a stale translation hits another
    /// data frame and never a table: what the canaries report stays confined.
    ///
    /// # Panics
    /// When the frame does not hold [`canary::POISON`](crate::canary::POISON) any more: something wrote to a free
    /// frame.
    fn frame(&self) -> Option<Self::Frame>;

    /// Makes the page tables of a new space: the kernel's mappings, and nothing in the window.
    /// `None` when no table frames are left.
    fn tables(&self) -> Option<Self::Tables>;

    /// Reads the aligned word at `va` through the translation this CPU uses now.
    ///
    /// # Errors
    /// [`Fault`] when the access raised a page fault.
    ///
    /// # Panics
    /// When `va` is not an aligned address of the window.
    fn read(&self, va: u64) -> Result<u64, Fault>;

    /// Writes the aligned word at `va` through the translation this CPU uses now.
    ///
    /// # Errors
    /// [`Fault`] when the access raised a page fault.
    ///
    /// # Panics
    /// When `va` is not an aligned address of the window.
    fn write(&self, va: u64, value: u64) -> Result<(), Fault>;
}

/// A physical frame that has one owner. Dropping it fills it with [`canary::POISON`](crate::canary::POISON) and
/// gives it back to the pool it came from, from where another CPU may take it at once.
pub trait Frame: Send {
    /// Physical address, in bytes.
    fn address(&self) -> u64;

    /// The first word, read through the kernel's own mapping.
    fn load(&self) -> u64;

    /// Writes the first word through the kernel's own mapping.
    fn store(&self, value: u64);
}

/// Page tables of one space. A mapped frame belongs to the tables. Dropping them gives back all that they own: only
/// allowed when no CPU can use them any more.
///
/// Methods change tables in memory and do nothing else: no flush, no barrier beyond the store itself.
pub trait PageTables: Send {
    /// The frames that are mapped, and those the tables are made of.
    type Frame: Frame;

    /// Physical address of the top-level table: what the crate loads into CR3 or TTBR0.
    fn root(&self) -> u64;

    /// Maps `frame` readable and writable at the page `va`.
    ///
    /// # Errors
    /// [`MapError`] when something is mapped there, or no frame is left for a table; `frame` is dropped.
    fn map(&mut self, va: u64, frame: Self::Frame) -> Result<(), MapError>;

    /// Clears the entry of the page `va`. The frame may be dropped only after the flush of that page completed.
    fn unmap(&mut self, va: u64) -> Option<Self::Frame>;

    /// Clears all entries of `pages` pages from `va` on, and detaches the tables that are empty then. Frames and
    /// tables go to `freed`, and may be dropped only after a flush that says *tables freed* completed.
    fn unmap_with_tables(&mut self, va: u64, pages: usize, freed: &mut dyn FnMut(Self::Frame));
}

/// A page fault taken by a verified access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address that faulted.
    pub address: u64,
}

/// Why a page was not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// Another frame is mapped there.
    Occupied,
    /// No frame was left for a table.
    NoFrame,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Occupied => "another frame is mapped there",
            Self::NoFrame => "no frame is left for a page table",
        })
    }
}

impl core::error::Error for MapError {}
