//! [`Edit`]: changes of page tables under their lock, and the flush they ask for.

use shootdown::{ChangeFlags, Paging, Range, Request, Stride};

use super::owner::{Found, Owner, index_of_page, index_of_region, store};
use crate::machine::{
    Mode,
    current::with,
    layout,
    oracle::Promise,
    physical::{GLOBAL, LEAF, PRESENT, WRITABLE, entry, frame_of},
    stores::Change,
};

/// What was changed.
#[derive(Debug)]
pub(crate) struct Edit<'a, const W: usize> {
    pub owner: &'a Owner<W>,
    /// arm64: an entry is never changed from valid to valid: it is cleared, flushed, then made anew.
    break_before_make: bool,
    kernel_global: bool,
    /// Pages that lost a translation.
    pub changed: u32,
    /// The first and the last address concerned.
    span: Option<(u64, u64)>,
    small: bool,
    large: bool,
    flags: ChangeFlags,
    /// Frames and tables to give back once the flush is complete.
    pub frees: Vec<u16>,
    /// Stores to do once the flush is complete.
    pub makes: Vec<(u16, usize, u64)>,
}

impl<'a, const W: usize> Edit<'a, W> {
    pub(crate) fn new(owner: &'a Owner<W>, kernel_global: bool) -> Self {
        Self {
            owner,
            break_before_make: with(|m| m.mode == Mode::Arm),
            kernel_global,
            changed: 0,
            span: None,
            small: false,
            large: false,
            flags: ChangeFlags::empty(),
            frees: Vec::new(),
            makes: Vec::new(),
        }
    }

    fn leaf(&self, frame: u16, writable: bool) -> u64 {
        let right = if writable { WRITABLE } else { 0 };
        let global = if self.owner.is_kernel() && self.kernel_global {
            GLOBAL
        } else {
            0
        };
        entry(frame, LEAF | right | global)
    }

    fn concerns(&mut self, first: u64, bytes: u64) {
        let last = first + (bytes - 1);
        self.span = Some(match self.span {
            None => (first, last),
            Some((low, high)) => (low.min(first), high.max(last)),
        });
    }

    fn small_page(&mut self, page: u8) {
        self.small = true;
        self.concerns(layout::address(page), layout::entry_bytes(0));
    }

    fn large_page(&mut self, region: u8) {
        self.large = true;
        self.concerns(layout::region_address(region), layout::REGION_BYTES);
    }

    fn store(&mut self, table: u16, index: usize, value: u64, change: Change) {
        self.changed |= change.pages;
        store(table, index, value, change);
    }

    /// Changes a valid entry to another valid one.
    fn replace(&mut self, table: u16, index: usize, value: u64, change: Change) {
        if self.break_before_make {
            self.store(table, index, 0, change);
            self.makes.push((table, index, value));
        } else {
            self.store(table, index, value, change);
        }
    }

    /// Maps `page` to a new frame, with a new table if it needs one. False if it is mapped already.
    pub(crate) fn map(&mut self, page: u8, writable: bool) -> bool {
        let region = layout::region_of(page);
        let found = self.owner.find(page);
        if matches!(found, Found::Page(..) | Found::Large(..)) {
            return false;
        }
        let none = Change::default();
        let middle = self.owner.middle().unwrap_or_else(|| {
            let middle = with(|m| m.memory.take());
            store(self.owner.root, 0, entry(middle, 0), none);
            middle
        });
        let table = self.owner.table(region).unwrap_or_else(|| {
            let table = with(|m| m.memory.take());
            store(middle, index_of_region(region), entry(table, 0), none);
            table
        });
        let frame = with(|m| m.memory.take());
        let leaf = self.leaf(frame, writable);
        store(table, index_of_page(page), leaf, none);
        true
    }

    /// Clears what maps `page`, a large page as a whole. Gives the frame.
    pub(crate) fn clear(&mut self, page: u8) -> Option<u16> {
        match self.owner.find(page) {
            Found::NoTable | Found::Nothing => None,
            Found::Page(table, entry) => {
                self.small_page(page);
                self.store(
                    table,
                    index_of_page(page),
                    0,
                    Change::page(self.owner.scope, page),
                );
                Some(frame_of(entry))
            }
            Found::Large(middle, entry) => {
                let region = layout::region_of(page);
                if !self.owner.is_region_settled(region) {
                    return None;
                }
                self.large_page(region);
                self.store(
                    middle,
                    index_of_region(region),
                    0,
                    Change::large(self.owner.scope, region),
                );
                Some(frame_of(entry))
            }
        }
    }

    /// Takes away the right to write.
    pub(crate) fn protect(&mut self, page: u8) {
        match self.owner.find(page) {
            Found::Page(table, entry) if entry & WRITABLE != 0 => {
                self.small_page(page);
                let change = Change::page(self.owner.scope, page);
                self.store(table, index_of_page(page), entry & !WRITABLE, change);
            }
            Found::Large(middle, entry) if entry & WRITABLE != 0 => {
                let region = layout::region_of(page);
                if self.owner.is_region_settled(region) {
                    self.large_page(region);
                    let change = Change::large(self.owner.scope, region);
                    self.store(middle, index_of_region(region), entry & !WRITABLE, change);
                }
            }
            _ => {}
        }
    }

    /// Gives the right to write: nothing needs to be flushed. True if the page lacked it.
    pub(crate) fn permit(&mut self, page: u8) -> bool {
        let (table, index, entry) = match self.owner.find(page) {
            Found::Page(table, entry) => (table, index_of_page(page), entry),
            Found::Large(middle, entry) => {
                (middle, index_of_region(layout::region_of(page)), entry)
            }
            _ => return false,
        };
        if entry & WRITABLE == 0 {
            store(table, index, entry | WRITABLE, Change::default());
        }
        entry & WRITABLE == 0
    }

    /// Maps another frame, of another owner, in place of the one that is mapped.
    pub(crate) fn exchange(&mut self, page: u8) {
        if let Found::Page(table, entry) = self.owner.find(page) {
            self.small_page(page);
            self.flags |= ChangeFlags::ATTRIBUTES_CHANGED;
            let frame = with(|m| m.memory.take());
            let leaf = self.leaf(frame, entry & WRITABLE != 0);
            self.replace(
                table,
                index_of_page(page),
                leaf,
                Change::page(self.owner.scope, page),
            );
            self.frees.push(frame_of(entry));
        }
    }

    /// Unlinks a region's table, with or without clearing its entries first; the flush is for the `whole` region, or
    /// for what was mapped. Gives the table and the frames it mapped.
    pub(crate) fn unlink(&mut self, region: u8, zap: bool, whole: bool) -> Option<(u16, Vec<u16>)> {
        let (middle, entry) = self.owner.region(region)?;
        if entry & (PRESENT | LEAF) != PRESENT {
            return None;
        }
        let table = frame_of(entry);
        let mut frames = Vec::new();
        let first = region * layout::PAGES_OF_REGION;
        for page in first..first + layout::PAGES_OF_REGION {
            let Found::Page(_, leaf) = self.owner.find(page) else {
                continue;
            };
            frames.push(frame_of(leaf));
            self.small_page(page);
            if zap {
                self.store(
                    table,
                    index_of_page(page),
                    0,
                    Change::page(self.owner.scope, page),
                );
            }
        }
        self.small_page(first);
        if whole {
            self.concerns(layout::region_address(region), layout::REGION_BYTES);
        }
        self.flags |= ChangeFlags::TABLES_FREED;
        self.store(
            middle,
            index_of_region(region),
            0,
            Change::table(self.owner.scope, region),
        );
        Some((table, frames))
    }

    /// Unlinks the table of regions with all that it leads to.
    pub(crate) fn unlink_top(&mut self) {
        let Some(middle) = self.owner.middle() else {
            return;
        };
        for region in 0..layout::USER_REGIONS {
            let Some((_, entry)) = self.owner.region(region) else {
                continue;
            };
            if entry & PRESENT == 0 {
                continue;
            }
            if entry & LEAF == 0 {
                for page in 0..layout::PAGES_OF_REGION {
                    if let Found::Page(_, leaf) =
                        self.owner.find(region * layout::PAGES_OF_REGION + page)
                    {
                        self.frees.push(frame_of(leaf));
                    }
                }
            }
            self.frees.push(frame_of(entry));
        }
        self.frees.push(middle);
        self.flags |= ChangeFlags::TABLES_FREED;
        let change = Change {
            scope: self.owner.scope,
            level: 2,
            pages: layout::all_pages(false),
            tables: (1 << layout::USER_REGIONS) - 1,
            top: true,
        };
        self.store(self.owner.root, 0, 0, change);
    }

    /// Splits a large page into small ones, or makes one of a region's small pages.
    pub(crate) fn resize(&mut self, region: u8) {
        let Some((middle, entry_now)) = self.owner.region(region) else {
            return;
        };
        let index = index_of_region(region);
        if entry_now & PRESENT == 0 {
            return;
        }
        if entry_now & LEAF != 0 {
            let frame = frame_of(entry_now);
            let leaf = self.leaf(frame, entry_now & WRITABLE != 0);
            let table = with(|m| {
                let table = m.memory.take();
                for page in 0..layout::PAGES_OF_REGION {
                    m.memory.initialize(table, usize::from(page), leaf);
                }
                for _ in 1..layout::PAGES_OF_REGION {
                    m.memory.share(frame);
                }
                table
            });
            self.large_page(region);
            self.replace(
                middle,
                index,
                entry(table, 0),
                Change::large(self.owner.scope, region),
            );
            return;
        }
        let table = frame_of(entry_now);
        for page in 0..layout::PAGES_OF_REGION {
            if let Found::Page(_, leaf) = self.owner.find(region * layout::PAGES_OF_REGION + page) {
                self.frees.push(frame_of(leaf));
            }
        }
        self.frees.push(table);
        self.small = true;
        self.concerns(layout::region_address(region), layout::REGION_BYTES);
        self.flags |= ChangeFlags::TABLES_FREED;
        let frame = with(|m| m.memory.take());
        let leaf = self.leaf(frame, true);
        self.replace(middle, index, leaf, Change::table(self.owner.scope, region));
    }

    /// Whether a region is mapped by a large page.
    pub(crate) fn is_large(&self, region: u8) -> bool {
        matches!(
            self.owner.find(region * layout::PAGES_OF_REGION),
            Found::Large(..)
        )
    }

    /// Names a page in the flush though nothing about it was changed.
    pub(crate) fn include(&mut self, page: u8) {
        self.small_page(page);
    }

    /// Says that tables were freed.
    pub(crate) fn frees_tables(&mut self) {
        self.flags |= ChangeFlags::TABLES_FREED;
    }

    /// Whether anything must be flushed.
    pub(crate) fn is_empty(&self) -> bool {
        self.span.is_none() && self.changed == 0
    }

    /// The range to flush; `None` is everything.
    pub(crate) fn range(&self, paging: Paging) -> Option<Range> {
        let (first, last) = self.span?;
        let stride = if self.large && !self.small {
            Stride::Size2M
        } else {
            Stride::Size4K
        };
        let (first, last) = if stride == Stride::Size4K {
            self.widen(first, last)
        } else {
            (first, last)
        };
        Range::new(paging, first, (last - first) / stride.bytes() + 1, stride).ok()
    }

    /// arm64 without range operations flushes up to 512 pages one by one, which takes the simulated machine long: a range that skips the middle
    /// of a region is made large enough to be flushed as a whole.
    pub(crate) fn widen(&self, first: u64, last: u64) -> (u64, u64) {
        let pages = (last - first) / layout::entry_bytes(0) + 1;
        if !self.break_before_make || with(|m| m.part.range) || !(9..=512).contains(&pages) {
            return (first, last);
        }
        let pair = 2 * layout::REGION_BYTES;
        let first = first & !(pair - 1);
        (first, first + (pair - 1))
    }

    /// The request, and what its completion promises. Pages that are `foreign` are someone else's business.
    pub(crate) fn request(&self, paging: Paging, all: bool, foreign: u32) -> (Request, Promise) {
        let range = self.range(paging).filter(|_| !all);
        let named = match &range {
            Some(range) => layout::pages_between(range.start(), range.last()),
            None => layout::all_pages(self.owner.is_kernel()),
        };
        let mut flags = self.flags;
        if self.small != self.large && !flags.contains(ChangeFlags::TABLES_FREED) {
            flags |= ChangeFlags::UNIFORM_LEVEL;
        }
        let request = range.map_or(Request::all(), Request::range).with(flags);
        let promise = Promise {
            scope: self.owner.scope,
            pages: named & !(foreign & !self.changed),
            hard: self.owner.is_kernel() || request.reaches_lazy(),
            tables: request.frees_tables(),
        };
        (request, promise)
    }
}
