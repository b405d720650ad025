//! The oracle: what the contract forbids, judged by ground truth that neither hardware nor the flusher has.
//!
//! Every change of a page table is dated when the table walkers see it, and every TLB entry by when the page-table entries
//! it stands for were read. When a flush completes, the changes it was for are *closed*: from then on an entry
//! that is older must not be used (a), or, if tables were freed, attributes changed, or it is the kernel's, must not
//! even be there to be used (b).

use core::sync::atomic::AtomicU64;

use shootdown::CpuSlot;

use super::{
    Machine,
    cpu::Cpu,
    layout::{self, PAGES, REGIONS},
    stores::{Buffered, Change},
    tlb::{Entry, Kind},
};

/// Dates of one page's translation, by the level of the page-table entry: the page's, the region's, the root's.
type Dates = [u64; 3];

/// The dates of one scope: the kernel's mappings, or a space.
#[derive(Clone, Debug)]
struct Truth {
    /// When walkers last saw a change of each page's translation.
    pages: [Dates; PAGES as usize],
    /// When they saw each region's table unlinked, and the table of regions.
    tables: [u64; REGIONS as usize],
    top: u64,
    /// Up to when changes of each page are closed for use.
    closed: [Dates; PAGES as usize],
    /// Up to when they are closed for speculation too.
    closed_hard: [Dates; PAGES as usize],
    /// As far as no earlier flush has closed them for use: an older entry that is not loaded may be left by that one.
    closed_first: [Dates; PAGES as usize],
    closed_tables: [u64; REGIONS as usize],
    closed_top: u64,
}

impl Truth {
    const NEW: Self = Self {
        pages: [[0; 3]; PAGES as usize],
        tables: [0; REGIONS as usize],
        top: 0,
        closed: [[0; 3]; PAGES as usize],
        closed_hard: [[0; 3]; PAGES as usize],
        closed_first: [[0; 3]; PAGES as usize],
        closed_tables: [0; REGIONS as usize],
        closed_top: 0,
    };
}

fn later(dates: &Dates, others: &Dates) -> Dates {
    core::array::from_fn(|level| dates[level].max(others[level]))
}

fn is_older(entry: &Dates, change: &Dates) -> bool {
    entry
        .iter()
        .zip(change)
        .any(|(entry, change)| entry < change)
}

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

impl Machine {
    /// A flush begins on the running CPU.
    pub(crate) fn begin_flush(&mut self, promise: Promise) -> FlushId {
        self.tally.flushes += 1;
        self.note(|_| {
            let Promise {
                scope,
                pages,
                hard,
                tables,
            } = promise;
            format!(
                "flush of scope {scope}, pages {pages:#x}, speculation {hard}, tables {tables} >>>"
            )
        });
        let sequence = self.store_sequence;
        let broadcasts = self.broadcasts_for_device(promise.scope);
        self.oracle
            .begin(self.current, promise, sequence, broadcasts)
    }

    /// The running CPU relies on a change being flushed that the flusher says is.
    pub(crate) fn begin_claim(&mut self, promise: Promise) -> FlushId {
        self.note(|_| {
            format!(
                "relies on scope {}, pages {:#x} being flushed",
                promise.scope, promise.pages
            )
        });
        self.oracle.begin(self.current, promise, 0, None)
    }

    /// A space has retired: no CPU may have anything of it that it can use, now or later.
    pub(crate) fn judge_retired(&mut self, scope: u8, root: u16) {
        let now = self.tick();
        self.oracle.close_all(scope, now);
        for cpu in 0..self.cpus.len() {
            let context = self.context(cpu, 0);
            if context.root == root || self.cpus[cpu].uses == Some(scope) {
                let number = self.cpus[cpu].number;
                return self.fail(format!(
                    "scope {scope} has retired, but cpu{number} has its root loaded"
                ));
            }
            self.oracle_judges_presence(cpu);
            self.judge_own_asid(cpu, scope);
        }
    }

    /// A flush has completed, as its initiator believes.
    pub(crate) fn end_flush(&mut self, flush: FlushId) -> Promise {
        let Some(open) = self.oracle.open[flush.0].take() else {
            unreachable!("a flush ends once");
        };
        let Promise { scope, pages, .. } = open.promise;
        self.note(|_| format!("flush of scope {scope}, pages {pages:#x} <<< complete"));
        let own = &self.cpus[open.cpu];
        let late = own.buffer.iter().filter_map(|store| match store {
            Buffered::Entry(store) => Some(store),
            Buffered::Word { .. } => None,
        });
        let unseen = late
            .chain(own.issued.iter().filter_map(super::arm::Issued::as_store))
            .find(|store| {
                store.sequence <= open.sequence
                    && store.change.scope == scope
                    && store.change.pages & pages != 0
            });
        if let Some(store) = unseen.copied() {
            let number = own.number;
            self.fail(format!(
                "a flush of cpu{number} completed, but table walkers do not see its store to table {}[{}] yet",
                store.table, store.index
            ));
        }
        self.judge_broadcast(open.cpu, scope, open.broadcasts);
        self.oracle.close(&open);
        open.promise
    }

    /// The moment a flush has completed: may `cpu` still use what it should have lost? `may` is what an NMI
    /// handler there would be told.
    pub(crate) fn judge_completion(&mut self, cpu: usize, promise: &Promise, may: bool) {
        if promise.hard {
            self.oracle_judges_presence(cpu);
        }
        let address = if promise.scope == 0 { u64::MAX } else { 0 };
        let uses = promise.scope != 0 && self.cpus[cpu].uses == Some(promise.scope);
        if uses || (may && self.context(cpu, address).scope == promise.scope) {
            self.judge_readiness(cpu);
        }
        self.judge_arm_completion(cpu, promise);
    }

    /// `cpu` is about to use its space: it must hold nothing that is closed for use, nor another space's entries.
    pub(crate) fn judge_readiness(&mut self, cpu: usize) {
        if self.cpus[cpu].exempt {
            return;
        }
        let context = self.context(cpu, 0);
        let entries = self.usable(cpu);
        let number = self.cpus[cpu].number;
        for entry in entries {
            if let Some(page) = self.oracle.is_closed(&entry) {
                let address = layout::address(page);
                let entry = entry.show();
                return self.fail(format!(
                    "cpu{number} may use {entry} though a flush of {address:#x} has completed"
                ));
            }
            if entry.scope != 0 && entry.scope != context.scope {
                let entry = entry.show();
                return self.fail(format!(
                    "cpu{number} may use {entry}, which is another space's"
                ));
            }
        }
    }

    /// Whether `cpu` could use, even speculatively, what no CPU may have any more.
    pub(crate) fn oracle_judges_presence(&mut self, cpu: usize) {
        if self.cpus[cpu].exempt {
            return;
        }
        if let Some(entry) = self
            .usable(cpu)
            .into_iter()
            .find(|entry| self.oracle.is_closed_hard(entry))
        {
            let number = self.cpus[cpu].number;
            let entry = entry.show();
            self.fail(format!(
                "cpu{number} can speculatively use {entry} though its flush has completed"
            ));
        }
    }

    /// The entries that `cpu` can use with the root that is loaded.
    fn usable(&self, cpu: usize) -> Vec<Entry> {
        let tag = self.context(cpu, 0).tag;
        let Cpu { tlb, .. } = &self.cpus[cpu];
        tlb.entries
            .iter()
            .chain(&tlb.fetched)
            .filter(|entry| entry.serves(tag))
            .copied()
            .collect()
    }

    /// `cpu` uses `entry` for `page`, which it takes for one of `space`.
    pub(crate) fn judge_use(&mut self, cpu: usize, page: u8, entry: &Entry, space: Option<u8>) {
        let number = self.cpus[cpu].number;
        let address = layout::address(page);
        let context = self.context(cpu, address);
        if let Some(space) = space.filter(|_| !layout::is_kernel(page))
            && context.scope != space
        {
            return self.fail(format!(
                "cpu{number} uses {address:#x} of space {space} in the tables of {}",
                context.scope
            ));
        }
        let owner = if layout::is_kernel(page) {
            0
        } else {
            context.scope
        };
        if entry.scope != owner {
            let shown = entry.show();
            return self.fail(format!(
                "cpu{number} uses {address:#x} of scope {owner} by {shown} of scope {}",
                entry.scope
            ));
        }
        let truth = &self.oracle.scopes[usize::from(owner)];
        let (closed, changed) = (
            truth.closed[usize::from(page)],
            truth.pages[usize::from(page)],
        );
        if is_older(&entry.times, &closed) {
            let shown = entry.show();
            return self.fail(format!(
                "cpu{number} uses {shown} though a flush of {address:#x} has completed"
            ));
        }
        if is_older(&entry.times, &changed) {
            self.tally.stale_hits_before_completion += 1;
        }
        if self.memory.generation(entry.frame) != Some(entry.generation) {
            let shown = entry.show();
            self.fail(format!("cpu{number} uses {shown}, a frame that was freed"));
        }
    }

    /// A CPU stores to a shared word: published generations must not go backwards.
    pub(crate) fn judge_publication(&mut self, word: &AtomicU64, value: u64) {
        let cpu = self.current;
        let Some(watched) = self.oracle.watched.get(cpu).copied() else {
            return;
        };
        let at = core::ptr::from_ref(word) as usize;
        let Some(which) = watched.iter().position(|word| *word == at) else {
            return;
        };
        let own = |machine: &Self, which: usize| {
            // The words of a slot stand in one line, see `CpuSlot`.
            let address = watched[which] as *const AtomicU64;
            // SAFETY: the address of a word of a slot that lives until the run is over.
            machine.own_view(cpu, unsafe { &*address })
        };
        // The kernel's generation is a scope of its own; no space has id 0.
        let named = match which {
            0 => CpuSlot::loaded_word_id(value).map(|space| (space, own(self, 1))),
            1 => CpuSlot::loaded_word_id(own(self, 0)).map(|space| (space, value)),
            _ => Some((0, value)),
        };
        let Some((space, generation)) = named else {
            return;
        };
        let known = self
            .oracle
            .published
            .iter_mut()
            .find(|(c, s, _)| (*c, *s) == (cpu, space));
        match known {
            Some((_, _, last)) if generation < *last => {
                let last = *last;
                let number = self.cpus[cpu].number;
                let scope = self.oracle.scope_of_id(space);
                self.fail(format!(
                    "cpu{number} publishes generation {generation} of scope {scope} after {last}"
                ));
            }
            Some((_, _, last)) => *last = generation,
            None => self.oracle.published.push((cpu, space, generation)),
        }
    }
}
