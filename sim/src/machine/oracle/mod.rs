//! The oracle: what the contract forbids, judged by ground truth that neither hardware nor the flusher has.
//!
//! Every change of a page table is dated when the table walkers see it, and every TLB entry by when the page-table entries
//! it stands for were read. When a flush completes, the changes it was for are *closed*: from then on an entry
//! that is older must not be used (a), or, if tables were freed, attributes changed, or it is the kernel's, must not
//! even be there to be used (b).

mod flush;
mod judge;
mod published;
mod truth;

use super::{
    layout::{self, PAGES, REGIONS},
    stores::Change,
    tlb::{Entry, Kind},
};
use truth::{Dates, Truth, is_older, later};

/// What a flush was asked to do, in ground truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    /// 0 is the kernel.
    pub scope: u8,
    /// The pages it names, as a mask.
    pub pages: u32,
    /// Tables were freed, attributes changed, or it is the kernel's.
    pub hard: bool,
    /// Tables were freed.
    pub tables: bool,
}

/// A flush that is under way.
#[derive(Clone, Debug)]
struct Open {
    cpu: usize,
    promise: Promise,
    /// Page-table stores of the same CPU up to this one count.
    sequence: u64,
    /// arm64, of a space that a device uses: the broadcasts that the CPU had issued before.
    broadcasts: Option<u64>,
    dates: Truth,
}

/// A flush that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushId(usize);

/// The oracle's memory.
#[derive(Debug)]
pub(crate) struct Oracle {
    scopes: Vec<Truth>,
    roots: Vec<(u16, u8)>,
    open: Vec<Option<Open>>,
    /// The generation each CPU last published for each space.
    published: Vec<(usize, u64, u64)>,
    /// The published words of each CPU: the loaded space, its generation, the kernel's.
    watched: Vec<[usize; 3]>,
    /// The ids of the run's spaces, which differ from run to run, and their scopes, which do not.
    ids: Vec<(u64, u8)>,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        Self {
            scopes: vec![Truth::NEW],
            roots: Vec::new(),
            open: Vec::new(),
            published: Vec::new(),
            watched: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// A new space with the root table `root`.
    pub(crate) fn new_scope(&mut self, root: u16) -> u8 {
        let scope = self.scopes.len() as u8;
        self.scopes.push(Truth::NEW);
        self.roots.retain(|(other, _)| *other != root);
        self.roots.push((root, scope));
        scope
    }

    /// Notes the id of a scope's space.
    pub(crate) fn identify(&mut self, id: u64, scope: u8) {
        self.ids.push((id, scope));
    }

    /// The scope of the space with an id; 0, the kernel, if there is none.
    pub(crate) fn scope_of_id(&self, id: u64) -> u8 {
        self.ids
            .iter()
            .find(|(other, _)| *other == id)
            .map_or(0, |(_, scope)| *scope)
    }

    /// Whose root table a frame is.
    pub(crate) fn scope_of_root(&self, root: u16) -> u8 {
        self.roots
            .iter()
            .find(|(other, _)| *other == root)
            .map_or(0, |(_, scope)| *scope)
    }

    /// Watches what a CPU publishes.
    pub(crate) fn watch(&mut self, words: [usize; 3]) {
        self.watched.push(words);
    }

    /// Table walkers see a change made by `cpu`.
    pub(crate) fn committed(&mut self, cpu: usize, sequence: u64, change: &Change, time: u64) {
        if change.pages == 0 {
            return;
        }
        let date = |truth: &mut Truth, pages: u32| {
            for page in 0..usize::from(PAGES) {
                if change.pages & pages & 1 << page != 0 {
                    truth.pages[page][usize::from(change.level)] = time;
                }
            }
            for region in 0..usize::from(REGIONS) {
                if change.tables >> region & 1 != 0 {
                    truth.tables[region] = time;
                }
            }
            if change.top {
                truth.top = time;
            }
        };
        date(&mut self.scopes[usize::from(change.scope)], u32::MAX);
        for open in self.open.iter_mut().flatten() {
            if open.cpu == cpu && open.promise.scope == change.scope && sequence <= open.sequence {
                date(&mut open.dates, open.promise.pages);
            }
        }
    }

    /// A flush begins on `cpu`: it is for what walkers see already, and for what this CPU has stored up to
    /// `sequence`.
    pub(crate) fn begin(
        &mut self,
        cpu: usize,
        promise: Promise,
        sequence: u64,
        broadcasts: Option<u64>,
    ) -> FlushId {
        let dates = self.scopes[usize::from(promise.scope)].clone();
        self.open.push(Some(Open {
            cpu,
            promise,
            sequence,
            broadcasts,
            dates,
        }));
        FlushId(self.open.len() - 1)
    }

    /// A flush that finds nothing to do may issue nothing.
    pub(crate) fn excuse(&mut self, flush: FlushId) {
        if let Some(open) = &mut self.open[flush.0] {
            open.broadcasts = None;
        }
    }

    fn close(&mut self, open: &Open) {
        let Promise {
            scope,
            pages,
            hard,
            tables,
        } = open.promise;
        let truth = &mut self.scopes[usize::from(scope)];
        for page in 0..usize::from(PAGES) {
            if pages >> page & 1 != 0 {
                if hard {
                    let (closed, dates) = (truth.closed[page], open.dates.pages[page]);
                    let first = core::array::from_fn(|level| {
                        if dates[level] > closed[level] {
                            dates[level]
                        } else {
                            0
                        }
                    });
                    truth.closed_first[page] = later(&truth.closed_first[page], &first);
                }
                truth.closed[page] = later(&truth.closed[page], &open.dates.pages[page]);
                if hard {
                    truth.closed_hard[page] =
                        later(&truth.closed_hard[page], &open.dates.pages[page]);
                }
            }
        }
        if tables {
            let regions = layout::regions_of(pages);
            for region in 0..usize::from(REGIONS) {
                if regions >> region & 1 != 0 {
                    truth.closed_tables[region] =
                        truth.closed_tables[region].max(open.dates.tables[region]);
                }
            }
            if pages & layout::all_pages(scope == 0) == layout::all_pages(scope == 0) {
                truth.closed_top = truth.closed_top.max(open.dates.top);
            }
        }
    }

    /// Nothing of a space may be used any more.
    pub(crate) fn close_all(&mut self, scope: u8, now: u64) {
        let truth = &mut self.scopes[usize::from(scope)];
        truth.closed = [[now; 3]; PAGES as usize];
        truth.closed_hard = truth.closed;
        truth.closed_first = truth.closed;
        truth.closed_tables = [now; REGIONS as usize];
        truth.closed_top = now;
    }

    /// Whether `entry` is older than a change that is closed for use.
    fn is_closed(&self, entry: &Entry) -> Option<u8> {
        let truth = &self.scopes[usize::from(entry.scope)];
        let pages = if entry.kind.is_leaf() {
            entry.pages()
        } else {
            0
        };
        (0..PAGES).find(|page| {
            pages >> page & 1 != 0 && is_older(&entry.times, &truth.closed[usize::from(*page)])
        })
    }

    /// Whether `entry` is older than a change that is closed for speculation.
    fn is_closed_hard(&self, entry: &Entry) -> bool {
        self.is_closed_by(entry, &self.scopes[usize::from(entry.scope)].closed_hard)
    }

    /// Whether `entry` should have gone even if its tag is not loaded.
    pub(crate) fn must_be_gone(&self, entry: &Entry) -> bool {
        self.is_closed_by(entry, &self.scopes[usize::from(entry.scope)].closed_first)
    }

    fn is_closed_by(&self, entry: &Entry, closed: &[Dates; PAGES as usize]) -> bool {
        let truth = &self.scopes[usize::from(entry.scope)];
        match entry.kind {
            Kind::Page | Kind::Large => {
                let pages = entry.pages();
                (0..PAGES).any(|page| {
                    pages >> page & 1 != 0 && is_older(&entry.times, &closed[usize::from(page)])
                })
            }
            Kind::Region => {
                let regions = layout::regions_of(entry.pages());
                (0..REGIONS).any(|region| {
                    regions >> region & 1 != 0
                        && entry.times[1] < truth.closed_tables[usize::from(region)]
                }) || entry.times[2] < truth.closed_top
            }
            Kind::Top => entry.times[2] < truth.closed_top,
        }
    }
}
