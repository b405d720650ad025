//! Whether a flush reaches the CPU that it should: another CPU reads a page all the time while its frame is exchanged.

use core::{
    hint::spin_loop,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use shootdown::{Range, Request, Stride, TlbFlusher};

use crate::{
    frames::Frame,
    paging::{Tables, USER_WINDOW},
    platform::Kernel,
    probe, smp,
};

const ROUNDS: u64 = 300;

/// In how many of the [`rounds`](Self::rounds) the other CPU read something old after a flush was complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aim {
    /// How often each was tried.
    pub rounds: u64,
    /// With flushes that go where they should.
    pub right: u64,
    /// With flushes that go elsewhere.
    pub wrong: u64,
}

/// Flushes for CPU 1, in turns as it should be and with `aim_wrong(true)`. All CPUs are online, with no space loaded.
///
/// # Panics
/// When there are not two CPUs, frames run out, or the flusher refuses the space.
pub fn check<F: TlbFlusher<Platform = Kernel>>(tlb: &F, aim_wrong: fn(bool)) -> Aim {
    assert!(smp::cpus() >= 2, "one CPU flushes, the other is flushed");
    let mut tables = Tables::new().expect("frames are left");
    let space = tlb.space(tables.root()).expect("the root is a table");
    tables
        .user()
        .map(USER_WINDOW, frame(0))
        .expect("nothing is mapped");
    let page = Range::new(tlb.paging(), USER_WINDOW, 1, Stride::Size4K).expect("it is a page");
    let tables = spin::Mutex::new(tables);
    let (reads, seen, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let aim = spin::Mutex::new(Aim::default());
    // What CPU 1 read, by a read that began after this was called.
    let look = || {
        // The read that is under way may have begun before.
        let now = reads.load(Acquire);
        while reads.load(Acquire) < now + 2 {
            spin_loop();
        }
        seen.load(Acquire)
    };
    smp::run_on_all(&|cpu| {
        // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
        unsafe { tlb.switch(&space) };
        if cpu == 0 {
            let flush = || tlb.flush(&space, Request::range(page)).wait();
            let (mut tables, mut aim) = (tables.lock(), aim.lock());
            for value in 1..=2 * ROUNDS {
                // Until it has the old translation.
                while look() != value - 1 {}
                let old = tables.user().unmap(USER_WINDOW);
                tables
                    .user()
                    .map(USER_WINDOW, frame(value))
                    .expect("it was unmapped");
                let wrong = value % 2 == 0;
                aim_wrong(wrong);
                flush();
                let stale = u64::from(look() != value);
                aim_wrong(false);
                if wrong {
                    aim.wrong += stale;
                    flush();
                } else {
                    aim.right += stale;
                    aim.rounds += 1;
                }
                // Not before, so that a stale translation reads what it did.
                drop(old);
            }
            done.store(true, Release);
        } else {
            while cpu == 1 && !done.load(Acquire) {
                // SAFETY: only data frames are mapped in the window. Between two mappings there is none.
                if let Ok(value) = unsafe { probe::read(USER_WINDOW) } {
                    seen.store(value, Release);
                }
                reads.fetch_add(1, Release);
            }
        }
        // SAFETY: the kernel's tables map the kernel.
        unsafe { tlb.unload() };
    });
    tlb.retire(&space).expect("nobody uses the space");
    aim.into_inner()
}

fn frame(value: u64) -> Frame {
    let frame = Frame::data().expect("frames are left");
    frame.store(0, value);
    frame
}
