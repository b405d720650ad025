//! A stale translation, made on purpose, and one flush that must remove it.

use core::array;
use core::sync::atomic::Ordering;

use shootdown::aarch64::skip_invalidations;
use shootdown::{Range, Request, Space, Stride};
use shootdown_examples_aarch64::frames::{Frame, Size};
use shootdown_examples_aarch64::paging::{
    Access, KERNEL_WINDOW, Tables, WINDOW, with_kernel_tables,
};
use shootdown_examples_aarch64::probe::{self, Fault};

use crate::attempt::{Attempt, attempts};
use crate::backend::Backend;
use crate::rig::Rig;

/// The most pages a case maps.
pub const MOST_PAGES: usize = 700;

/// Whose mapping it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A space, loaded on the CPU that flushes and on the one that reads.
    Space,
    /// A space that the CPU that flushes has not loaded, as in reclaim.
    SpaceElsewhere,
    /// The kernel.
    Kernel,
}

/// What the flush names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The range that was unmapped, with the level of its leafs as a hint.
    RangeOfOneLevel,
    /// The range that was unmapped.
    Range,
    /// The range, and that tables were freed.
    RangeAndTables,
    /// Everything of the owner.
    All,
}

/// Pages that are mapped, read, unmapped by CPU 0 and read again.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    size: Size,
    pages: usize,
    owner: Owner,
    reach: Reach,
    reader: usize,
    /// Leafs between the start of the window and the first.
    place: u64,
}

/// A case of `pages` leafs of `size`, read on the CPU that flushes.
#[must_use]
pub const fn case(size: Size, pages: usize, owner: Owner, reach: Reach) -> Case {
    Case {
        size,
        pages,
        owner,
        reach,
        reader: 0,
        place: 0,
    }
}

impl Case {
    /// The same case, read on CPU `reader`.
    #[must_use]
    pub const fn read_on(self, reader: usize) -> Self {
        Self { reader, ..self }
    }

    /// The reads are stale after the unmapping and fault after the flush.
    ///
    /// # Panics
    /// When a read gives something else.
    pub fn is_fresh_after_the_flush<B: Backend>(self) {
        self.run::<B>(false);
    }

    /// The counter-test: with the invalidation instruction left out, the reads are still stale after the flush.
    ///
    /// # Panics
    /// When a read gives something else.
    pub fn is_stale_without_the_instruction<B: Backend>(self) {
        self.run::<B>(true);
    }

    fn start(&self) -> u64 {
        let window = match self.owner {
            Owner::Kernel => KERNEL_WINDOW.start,
            _ => WINDOW.start,
        };
        window + self.place * self.size.bytes()
    }

    fn range<B: Backend>(&self) -> Range {
        let stride = match self.size {
            Size::Page => Stride::Size4K,
            Size::Block => Stride::Size2M,
        };
        Range::new(B::TLB.paging(), self.start(), self.pages as u64, stride)
            .expect("windows are aligned")
    }

    fn request<B: Backend>(&self) -> Request {
        match self.reach {
            Reach::RangeOfOneLevel => Request::range(self.range::<B>()).uniform_level(),
            Reach::Range => Request::range(self.range::<B>()),
            Reach::RangeAndTables => Request::range(self.range::<B>()).tables_freed(),
            Reach::All => Request::all(),
        }
    }

    /// An address in the first, the middle and the last leaf, not at the leaf's start.
    fn probes(&self) -> [u64; 3] {
        [0, self.pages / 2, self.pages - 1]
            .map(|page| self.start() + page as u64 * self.size.bytes() + self.size.bytes() / 2 + 8)
    }

    fn run<B: Backend>(self, without_instruction: bool) {
        let rig = Rig::start::<B>();
        attempts(|place| Self { place, ..self }.attempt::<B>(&rig, without_instruction));
    }

    fn attempt<B: Backend>(&self, rig: &Rig, without_instruction: bool) -> Attempt {
        let mut tables = Tables::of_space().expect("the pool is full at start");
        let space = B::TLB.space(tables.root()).expect("there are few spaces");
        let values = self.map(&mut tables);
        B::TLB.mapped(&self.range::<B>());
        if self.owner == Owner::Space {
            load::<B>(&space);
        }
        let read = || rig.on(self.reader, || self.probes().map(probe::read));
        rig.on(self.reader, || load::<B>(&space));
        assert_eq!(read(), values.map(Ok), "they are mapped");

        let frames = self.unmap::<B>(&mut tables);
        let unflushed = read();
        skip_invalidations(without_instruction);
        match self.owner {
            Owner::Kernel => B::TLB.flush_kernel(self.request::<B>()).wait(),
            _ => B::TLB.flush(&space, self.request::<B>()).wait(),
        }
        let flushed = read();
        skip_invalidations(false);

        let are_stale = |reads: [Result<u64, Fault>; 3]| {
            for (read, value) in reads.into_iter().zip(values) {
                assert!(
                    read.is_err() || read == Ok(value),
                    "{read:?} is neither old nor a fault"
                );
            }
            reads == values.map(Ok)
        };
        let seen = if without_instruction {
            are_stale(unflushed) && are_stale(flushed)
        } else {
            for (va, read) in self.probes().into_iter().zip(flushed) {
                let address = read.map_err(|fault| fault.address);
                assert_eq!(
                    address,
                    Err(va),
                    "the flush is complete, and yet there is a translation"
                );
            }
            are_stale(unflushed)
        };
        B::TLB.flush_kernel(Request::all()).wait();
        drop(frames);
        unload_everywhere::<B>(rig);
        B::TLB.retire(&space).expect("no CPU has it loaded");
        Attempt::conclusive_if(seen)
    }

    /// Maps the leafs and returns what the probes must read.
    fn map(&self, tables: &mut Tables) -> [u64; 3] {
        for page in 0..self.pages {
            let frame = Frame::data(self.size).expect("the pools are full at start");
            let va = self.start() + page as u64 * self.size.bytes();
            for (index, word) in frame.words().iter().enumerate() {
                word.store(va + index as u64 * 8, Ordering::Relaxed);
            }
            let mapped = match self.owner {
                Owner::Kernel => {
                    with_kernel_tables(|tables| tables.map(va, frame, Access::ReadWrite))
                }
                _ => tables.map(va, frame, Access::ReadWrite),
            };
            mapped.expect("the window is empty");
        }
        self.probes()
    }

    /// Unmaps the leafs. The frames stay as they are until the flush is complete.
    fn unmap<B: Backend>(&self, tables: &mut Tables) -> [Option<Frame>; MOST_PAGES + 4] {
        let mut frames = array::from_fn(|_| None);
        let mut slots = frames.iter_mut();
        let mut keep = |frame| *slots.next().expect("a case has few frames") = Some(frame);
        let span = self.start()..self.start() + self.range::<B>().bytes();
        let mut unmap = |tables: &mut Tables| {
            if self.reach == Reach::RangeAndTables {
                tables.unmap_with_tables(span.clone(), &mut keep);
            } else {
                for va in self.range::<B>().iter() {
                    keep(tables.unmap(va, self.size).expect("it is mapped"));
                }
            }
        };
        match self.owner {
            Owner::Kernel => with_kernel_tables(unmap),
            _ => unmap(tables),
        }
        frames
    }
}

/// Loads `space` on the calling CPU.
pub fn load<B: Backend>(space: &Space) {
    // SAFETY: every space maps the kernel and all stacks; tests retire a space before it ends.
    unsafe { B::TLB.switch(space) }
}

/// Loads the kernel's own root on the calling CPU.
pub fn unload<B: Backend>() {
    // SAFETY: it maps the kernel and all stacks.
    unsafe { B::TLB.unload() }
}

/// Loads the kernel's own root on all CPUs.
pub fn unload_everywhere<B: Backend>(rig: &Rig) {
    rig.on_all(&|_| unload::<B>());
}
