//! An address space with the threads that live in it.

use shootdown::{Range, Space, Stride, TlbFlusher};
use spin::{Mutex, MutexGuard};

use crate::{
    canary,
    machine::{Frame, Machine, PAGE, PageTables},
    shadow::{Epochs, Shadow, State},
};

/// Bytes from one thread's pages to the next thread's: what one last-level table maps, so that a thread that unmaps
/// everything frees a table.
pub const REGION: u64 = 512 * PAGE;

/// A space, its page tables, and `T` threads with `P` pages each. All places use the same virtual addresses.
pub struct Place<M: Machine, const T: usize, const P: usize> {
    /// What the crate knows the space by.
    pub space: Space,
    tables: Mutex<M::Tables>,
    /// The threads. One more page, the anchor, stays mapped behind their regions, so that only last-level tables
    /// come free.
    pub threads: [Thread<P>; T],
    anchor: Shadow,
}

/// A simulated thread: its pages, and the CPU on which it ran last. It may go on on any CPU, on one at a time.
#[derive(Debug)]
pub struct Thread<const P: usize> {
    /// The pages' states. Who holds `last_cpu` changes them; anyone may check them.
    pub pages: [Shadow; P],
    /// Held while the thread runs. Never spun on: a thread that is taken runs elsewhere.
    pub last_cpu: Mutex<Option<usize>>,
}

impl<M: Machine, const T: usize, const P: usize> Place<M, T, P> {
    /// Makes a space with nothing mapped but the anchor.
    ///
    /// # Panics
    /// When frames run out, or the flusher refuses the space.
    pub fn new(machine: &M, epochs: &Epochs) -> Self {
        const { assert!(P as u64 <= REGION / PAGE) };
        let mut tables = machine.tables().expect("no frame is left for page tables");
        let (anchor, epoch) = (Shadow::new(), epochs.next());
        let frame = machine.frame().expect("no frame is left for the anchor");
        frame.store(canary::tag(epoch));
        tables
            .map(M::WINDOW + T as u64 * REGION, frame)
            .expect("the window is empty");
        anchor.holds(epoch);
        let space = machine
            .tlb()
            .space(tables.root())
            .expect("the root is a table");
        let threads = [const {
            Thread {
                pages: [const { Shadow::new() }; P],
                last_cpu: Mutex::new(None),
            }
        }; T];
        Self {
            space,
            tables: Mutex::new(tables),
            threads,
            anchor,
        }
    }

    /// Takes the page tables. Serves flushes while another CPU has them.
    pub fn tables(&self, machine: &M) -> MutexGuard<'_, M::Tables> {
        loop {
            if let Some(tables) = self.tables.try_lock() {
                return tables;
            }
            machine.relax();
            machine.tlb().poll();
        }
    }

    /// The state of page `page` of thread `thread`, and where the page is. Page 0 of thread `T` is the anchor.
    pub fn page(&self, thread: usize, page: usize) -> (u64, &Shadow) {
        let va = M::WINDOW + thread as u64 * REGION + page as u64 * PAGE;
        let shadow = if thread == T {
            &self.anchor
        } else {
            &self.threads[thread].pages[page]
        };
        (va, shadow)
    }

    /// The range of `pages` pages from page `page` of thread `thread` on.
    pub fn range(machine: &M, thread: usize, page: usize, pages: usize) -> Range {
        let va = M::WINDOW + thread as u64 * REGION + page as u64 * PAGE;
        Range::new(machine.tlb().paging(), va, pages as u64, Stride::Size4K)
            .expect("regions lie in the window")
    }

    /// The range that the last-level table of thread `thread` maps.
    pub fn region(machine: &M, thread: usize) -> Range {
        Self::range(machine, thread, 0, (REGION / PAGE) as usize)
    }

    /// Clears the entry of a page that holds the tag of `before`, and returns its frame.
    ///
    /// # Panics
    /// When the frame does not hold that tag: a write went astray.
    pub fn unmap(&self, machine: &M, va: u64, before: State) -> M::Frame {
        let frame = self.tables(machine).unmap(va).expect("the page is mapped");
        assert_canary(&frame, before);
        frame
    }

    /// Ends the space's life, which nobody uses any more. Call it before the place is moved or dropped.
    ///
    /// # Panics
    /// When a CPU still uses it.
    pub fn retire(&self, machine: &M) {
        machine
            .tlb()
            .retire(&self.space)
            .expect("nobody uses the space");
    }
}

/// Checks, past all TLBs, that a frame holds what its page should.
///
/// # Panics
/// When it does not: a write went astray.
pub fn assert_canary(frame: &impl Frame, state: State) {
    if let State::Holds(tag) = state {
        let found = frame.load();
        assert!(
            found == tag,
            "frame {:#x} holds {found:#x} instead of {tag:#x}",
            frame.address()
        );
    }
}
