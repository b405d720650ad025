//! Workload: all CPUs contend for a lock whose holder exchanges a page of the space that all of them use. Those that
//! wait for it halted are spared the flush, and must be clean when they have it.

use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use shootdown::{Range, Request, Stride, TlbFlusher};
use shootdown_workload::Barrier;

use crate::{
    frames::Frame,
    paging::{Tables, USER_WINDOW},
    platform::Kernel,
    probe,
    pv_lock::PvLock,
    smp,
};

const ROUNDS: u64 = 40;
/// The most turns for which the lock is held so that another CPU halts for it.
const HOLD: u32 = 2000;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention {
    /// How often a CPU halted.
    pub halts: u64,
    /// Reads of who had just taken the lock.
    pub reads: u64,
    /// Those of them that were stale.
    pub stale: u64,
}

struct Shared {
    tables: Tables,
    /// What the page holds.
    value: u64,
    /// The frame before, so that a stale translation reads what it did.
    old: Option<Frame>,
}

/// Runs the workload on all CPUs. All are online, with no space loaded; [`pv_lock::init`](crate::pv_lock::init) was
/// called.
///
/// # Panics
/// When frames run out, or the flusher refuses the space.
pub fn run<F: TlbFlusher<Platform = Kernel>>(tlb: &F) -> Contention {
    let mut tables = Tables::new().expect("frames are left");
    let space = tlb.space(tables.root()).expect("the root is a table");
    tables
        .user()
        .map(USER_WINDOW, frame(0))
        .expect("nothing is mapped");
    let page = Range::new(tlb.paging(), USER_WINDOW, 1, Stride::Size4K).expect("it is a page");
    let lock = PvLock::new(Shared {
        tables,
        value: 0,
        old: None,
    });
    let (reads, stale) = (AtomicU64::new(0), AtomicU64::new(0));
    let barrier = Barrier::new(smp::cpus());
    smp::run_on_all(&|_| {
        // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
        unsafe { tlb.switch(&space) };
        barrier.wait(spin_loop);
        for _ in 0..ROUNDS {
            // SAFETY: as above.
            let mut shared = unsafe { lock.lock(tlb) };
            // SAFETY: only data frames are mapped in the window.
            let seen = unsafe { probe::read(USER_WINDOW) };
            reads.fetch_add(1, Relaxed);
            if seen != Ok(shared.value) {
                stale.fetch_add(1, Relaxed);
            }
            for _ in 0..HOLD {
                if lock.is_awaited() {
                    break;
                }
                tlb.poll();
                spin_loop();
            }
            let new = frame(shared.value + 1);
            let old = shared.tables.user().unmap(USER_WINDOW);
            shared
                .tables
                .user()
                .map(USER_WINDOW, new)
                .expect("it was unmapped");
            shared.value += 1;
            tlb.flush(&space, Request::range(page)).wait();
            shared.old = old;
        }
        barrier.wait(|| {
            tlb.poll();
            spin_loop();
        });
        // SAFETY: the kernel's tables map the kernel.
        unsafe { tlb.unload() };
    });
    tlb.retire(&space).expect("nobody uses the space");
    Contention {
        halts: lock.halts(),
        reads: reads.into_inner(),
        stale: stale.into_inner(),
    }
}

fn frame(value: u64) -> Frame {
    let frame = Frame::data().expect("frames are left");
    frame.store(0, value);
    frame
}
