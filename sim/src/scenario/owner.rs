//! Whose page tables they are: the kernel's, or a space's.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use shootdown::Space;

use super::lock::Lock;
use crate::machine::{
    current::with,
    layout::{self, PAGES},
    physical::{LEAF, PRESENT, frame_of},
    scheduler::point,
    stores::Change,
};

/// The kernel's mappings, or a space: its page tables, their lock, and what is under way in them.
#[derive(Debug)]
pub(crate) struct Owner<const W: usize> {
    /// `None` is the kernel. Never dropped: a space of a run that failed has not retired.
    pub space: Option<ManuallyDrop<Space<W>>>,
    /// 0 is the kernel.
    pub scope: u8,
    pub root: u16,
    pub lock: Lock,
    /// For each page, changes by plain operations whose flush goes on after the lock was dropped: nobody may act on
    /// them meanwhile.
    plain: RefCell<[u8; PAGES as usize]>,
    /// For each page, gathers that have changed it and are not finished: whoever acts on it flushes first.
    gathered: RefCell<[u8; PAGES as usize]>,
    /// Operations that are under way.
    ops: Cell<u32>,
    /// Those of them that have come to their flush or switch, beside which the space may retire.
    at_ease: Cell<u32>,
    /// It is about to retire: no operation may begin.
    pub retiring: Cell<bool>,
    pub retired: Cell<bool>,
}

/// What a table entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The region has no table.
    NoTable,
    /// The table has no entry for the page.
    Nothing,
    /// The table and the entry.
    Page(u16, u64),
    /// The table of regions and its entry, a large page.
    Large(u16, u64),
}

fn load(table: u16, index: usize) -> u64 {
    point();
    with(|m| m.load_entry(table, index))
}

/// A store to a page table, which is a scheduling point.
pub(crate) fn store(table: u16, index: usize, value: u64, change: Change) {
    point();
    with(|m| m.store_entry(table, index, value, change));
}

impl<const W: usize> Owner<W> {
    pub(crate) fn new(space: Option<Space<W>>, scope: u8, root: u16) -> Self {
        Self {
            space: space.map(ManuallyDrop::new),
            scope,
            root,
            lock: Lock::default(),
            plain: RefCell::new([0; PAGES as usize]),
            gathered: RefCell::new([0; PAGES as usize]),
            ops: Cell::new(0),
            at_ease: Cell::new(0),
            retiring: Cell::new(false),
            retired: Cell::new(false),
        }
    }

    /// Begins an operation, unless it is too late.
    pub(crate) fn begin(&self) -> bool {
        let may = !self.retiring.get() && !self.retired.get();
        if may {
            self.ops.set(self.ops.get() + 1);
        }
        may
    }

    /// Ends an operation; true if it was the last one of a space that has retired.
    pub(crate) fn end(&self) -> bool {
        self.ops.set(self.ops.get() - 1);
        self.ops.get() == 0 && self.retired.get()
    }

    /// Acts in a way beside which the space may retire.
    pub(crate) fn at_ease<R>(&self, act: impl FnOnce() -> R) -> R {
        self.at_ease.set(self.at_ease.get() + 1);
        let result = act();
        self.at_ease.set(self.at_ease.get() - 1);
        result
    }

    /// Whether no operation is under way, or, for the `eager`, only such as the space may retire beside.
    pub(crate) fn is_quiet(&self, eager: bool) -> bool {
        self.ops.get() == if eager { self.at_ease.get() } else { 0 }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.ops.get() != 0
    }

    pub(crate) fn is_kernel(&self) -> bool {
        self.scope == 0
    }

    /// The table of regions.
    pub(crate) fn middle(&self) -> Option<u16> {
        if self.is_kernel() {
            return Some(with(|m| m.memory.kernel_middle()));
        }
        let entry = load(self.root, 0);
        (entry & PRESENT != 0).then(|| frame_of(entry))
    }

    /// The table of regions, and the region's entry in it.
    pub(crate) fn region(&self, region: u8) -> Option<(u16, u64)> {
        let middle = self.middle()?;
        Some((middle, load(middle, index_of_region(region))))
    }

    /// The table of the region's pages.
    pub(crate) fn table(&self, region: u8) -> Option<u16> {
        let (_, entry) = self.region(region)?;
        (entry & (PRESENT | LEAF) == PRESENT).then(|| frame_of(entry))
    }

    /// What maps `page`.
    pub(crate) fn find(&self, page: u8) -> Found {
        let Some((middle, entry)) = self.region(layout::region_of(page)) else {
            return Found::NoTable;
        };
        if entry & PRESENT == 0 {
            return Found::NoTable;
        }
        if entry & LEAF != 0 {
            return Found::Large(middle, entry);
        }
        let table = frame_of(entry);
        let entry = load(table, index_of_page(page));
        if entry & PRESENT == 0 {
            Found::Nothing
        } else {
            Found::Page(table, entry)
        }
    }

    /// Whether no plain operation on `page` is under way.
    pub(crate) fn is_settled(&self, page: u8) -> bool {
        self.plain.borrow()[usize::from(page)] == 0
    }

    /// Whether no plain operation on any page of `region` is under way.
    pub(crate) fn is_region_settled(&self, region: u8) -> bool {
        (0..layout::PAGES_OF_REGION)
            .all(|page| self.is_settled(region * layout::PAGES_OF_REGION + page))
    }

    /// Notes that the flush of plain changes goes on, or (`false`) that it has ended.
    pub(crate) fn mark_plain(&self, pages: u32, begins: bool) {
        mark(&mut self.plain.borrow_mut(), pages, begins);
    }

    /// Notes that a gather has changed pages, or (`false`) that it is finished.
    pub(crate) fn mark_gathered(&self, pages: u32, begins: bool) {
        mark(&mut self.gathered.borrow_mut(), pages, begins);
    }

    /// The pages whose flush is someone else's business: no other flush promises anything about them.
    pub(crate) fn foreign(&self, gathered_too: bool) -> u32 {
        let (plain, gathered) = (self.plain.borrow(), self.gathered.borrow());
        let foreign = |page: &usize| plain[*page] != 0 || (gathered_too && gathered[*page] != 0);
        (0..usize::from(PAGES))
            .filter(foreign)
            .map(|page| 1 << page)
            .sum()
    }
}

fn mark(counts: &mut [u8; PAGES as usize], pages: u32, begins: bool) {
    for (page, count) in counts.iter_mut().enumerate() {
        if pages >> page & 1 != 0 {
            *count = if begins { *count + 1 } else { *count - 1 };
        }
    }
}

/// A page's place in its table.
pub(crate) fn index_of_page(page: u8) -> usize {
    layout::entry_of(layout::address(page), 0)
}

/// A region's place in the table of regions.
pub(crate) fn index_of_region(region: u8) -> usize {
    layout::entry_of(layout::region_address(region), 1)
}
