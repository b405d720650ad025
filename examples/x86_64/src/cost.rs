//! What a flush of one page costs while another CPU has the space loaded.

use core::{
    hint::spin_loop,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use shootdown::{Range, Request, Stride, TlbFlusher};

use crate::{
    frames::Frame,
    paging::{Tables, USER_WINDOW},
    platform::Kernel,
    println, probe, smp,
};

const FLUSHES: usize = 31;

/// Measures and prints a line `cost: median=CYCLES ...`. Before each flush the other CPU has run: where both share a
/// processor, it is stopped then.
///
/// # Panics
/// When there are not two CPUs, frames run out, or the flusher refuses the space.
pub fn measure<F: TlbFlusher<Platform = Kernel>>(tlb: &F) {
    assert_eq!(smp::cpus(), 2, "one CPU flushes, the other is flushed");
    let mut tables = Tables::new().expect("frames are left");
    let space = tlb.space(tables.root()).expect("the root is a table");
    let page = Frame::data().expect("frames are left");
    tables
        .user()
        .map(USER_WINDOW, page)
        .expect("nothing is mapped");
    let range = Range::new(tlb.paging(), USER_WINDOW, 1, Stride::Size4K).expect("it is a page");
    let (turns, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let median = AtomicU64::new(0);
    let before = tlb.counters();
    smp::run_on_all(&|cpu| {
        // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
        unsafe { tlb.switch(&space) };
        if cpu == 0 {
            let mut cycles = [0; FLUSHES];
            for cycles in &mut cycles {
                let seen = turns.load(Acquire);
                while turns.load(Acquire) == seen {
                    spin_loop();
                }
                let begin = smp::cycles();
                tlb.flush(&space, Request::range(range)).wait();
                *cycles = smp::cycles() - begin;
            }
            cycles.sort_unstable();
            median.store(cycles[FLUSHES / 2], Relaxed);
            done.store(true, Release);
        } else {
            while !done.load(Acquire) {
                // SAFETY: only data frames are mapped in the window.
                let _ = unsafe { probe::read(USER_WINDOW) };
                turns.fetch_add(1, Release);
            }
        }
        // SAFETY: the kernel's tables map the kernel.
        unsafe { tlb.unload() };
    });
    tlb.retire(&space).expect("nobody uses the space");
    let after = tlb.counters();
    println!(
        "cost: median={} flushes={FLUSHES} sent={} by_host={}",
        median.into_inner(),
        after.ipis_sent - before.ipis_sent,
        after.elided_by_host - before.elided_by_host
    );
}
