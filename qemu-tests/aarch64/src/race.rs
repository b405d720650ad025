//! All CPUs map, unmap and flush pages of one space and read each other's, at the same time.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use shootdown::{Range, Request, Space, Stride};
use shootdown_examples_aarch64::frames::{Frame, Size};
use shootdown_examples_aarch64::lock::{Lock, relax};
use shootdown_examples_aarch64::paging::{Access, Tables, WINDOW};
use shootdown_examples_aarch64::{cpu, probe};

use crate::backend::Backend;
use crate::case::{load, unload_everywhere};
use crate::rig::Rig;

/// Whether the CPUs take interrupts during the race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// Taken.
    On,
    /// Masked on all CPUs, for the whole race.
    Off,
}

/// What the reads of a race came to.
#[derive(Debug, Default)]
pub struct Reads {
    /// Reads of pages that another CPU maps and unmaps, through a translation that was valid.
    pub mapped_elsewhere: AtomicU64,
    /// Reads through a translation that this CPU had flushed.
    pub stale_here: AtomicU64,
    /// Reads through a translation that another CPU had flushed.
    pub stale_elsewhere: AtomicU64,
}

/// The page of one CPU. A tag is the number of the CPU's frames so far, with the CPU above; tags grow.
struct Page {
    va: u64,
    owner: u64,
    /// The lowest tag that a read may give from now on.
    lowest: AtomicU64,
}

impl Page {
    fn tag(&self, count: u64) -> u64 {
        (self.owner + 1) << 32 | count
    }

    fn range<B: Backend>(&self) -> Range {
        Range::new(B::TLB.paging(), self.va, 1, Stride::Size4K).expect("the window is aligned")
    }

    /// Reads the page and judges what comes. A stale translation leads to a frame that is poisoned, of someone else, or
    /// has a tag that is too low.
    fn read(&self, here: usize, reads: &Reads) {
        let lowest = self.lowest.load(Ordering::Acquire);
        let Ok(value) = probe::read(self.va) else {
            return;
        };
        let elsewhere = self.owner != here as u64;
        let counter = match (value >> 32 == self.owner + 1 && value >= lowest, elsewhere) {
            (true, true) => &reads.mapped_elsewhere,
            (true, false) => return,
            (false, true) => &reads.stale_elsewhere,
            (false, false) => &reads.stale_here,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Each CPU maps and unmaps at least this often.
const ROUNDS: u64 = 400;

/// A CPU gives up after this many: some seconds.
const MOST_ROUNDS: u64 = 200_000;

/// Runs the race on all CPUs, until the reads are `enough` or it has taken too long. Where the CPUs are threads of a
/// busy host, one may have done many rounds before another one gets its turn.
///
/// # Panics
/// When there are more than [`cpu::MAX`] CPUs, or frames run out.
#[must_use]
pub fn race<B: Backend>(rig: &Rig, interrupts: Interrupts, enough: fn(&Reads) -> bool) -> Reads {
    let tables = Tables::of_space().expect("the pool is full at start");
    let space = B::TLB.space(tables.root()).expect("the first space");
    let tables = Lock::new(tables);
    let pages: [Page; cpu::MAX] = core::array::from_fn(|owner| Page {
        va: WINDOW.start + owner as u64 * Size::Page.bytes(),
        owner: owner as u64,
        lowest: AtomicU64::new(0),
    });
    let pages = &pages[..rig.cpus()];
    let reads = Reads::default();
    let done = AtomicUsize::new(0);
    rig.on_all(&|here| {
        let saved = (interrupts == Interrupts::Off).then(cpu::irq_save);
        load::<B>(&space);
        for round in 1..=MOST_ROUNDS {
            if round == ROUNDS {
                done.fetch_add(1, Ordering::Relaxed);
            }
            if done.load(Ordering::Relaxed) == pages.len() && enough(&reads) {
                break;
            }
            let own = &pages[here];
            map::<B>(own, own.tag(round), &tables);
            // The others get their turn here, also where one host thread runs all CPUs: each finds this page mapped.
            relax();
            own.read(here, &reads);
            for page in pages {
                page.read(here, &reads);
            }
            let frame = unmap::<B>(own, round, &space, &tables);
            for page in pages {
                page.read(here, &reads);
            }
            // A stale translation leads to the old tag until here, and to poison afterwards.
            relax();
            drop(frame);
            relax();
        }
        if let Some(saved) = saved {
            cpu::irq_restore(saved);
        }
    });
    unload_everywhere::<B>(rig);
    B::TLB.retire(&space).expect("no CPU has it loaded");
    reads
}

fn map<B: Backend>(page: &Page, tag: u64, tables: &Lock<Tables>) {
    let frame = Frame::data(Size::Page).expect("each CPU has one frame");
    frame.words()[0].store(tag, Ordering::Relaxed);
    let mapped = tables.lock().map(page.va, frame, Access::ReadWrite);
    mapped.expect("the page is unmapped");
    B::TLB.mapped(&page.range::<B>());
}

fn unmap<B: Backend>(page: &Page, round: u64, space: &Space, tables: &Lock<Tables>) -> Frame {
    let frame = tables
        .lock()
        .unmap(page.va, Size::Page)
        .expect("the page is mapped");
    // Every eighth flush is of everything, and every eighth of the kernel's translations besides.
    let request = if round.is_multiple_of(8) {
        Request::all()
    } else {
        Request::range(page.range::<B>())
    };
    B::TLB.flush(space, request).wait();
    if round % 8 == 4 {
        B::TLB.flush_kernel(Request::all()).wait();
    }
    page.lowest.store(page.tag(round + 1), Ordering::Release);
    frame
}
