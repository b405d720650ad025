//! CPUs that have interrupts off.

use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use shootdown::{Request, Stride};
use shootdown_workload::Barrier;
use spin::Mutex;
use x86_64::instructions::interrupts;
use x86_kernel::{paging::USER_WINDOW, smp};

use crate::{
    Backend, bring_up,
    observe::read,
    pages::{frame, new_space, range},
};

const ROUNDS: u64 = 200;

/// Flushes that CPUs make at the same time. The first `initiators` exchange a page of their own, again and again;
/// those below `deaf` have interrupts off, and poll while they wait for nothing of their own.
fn storm<B: Backend>(initiators: usize, deaf: usize) {
    let tlb = bring_up::<B>();
    let cpus = smp::cpus();
    let (initiators, deaf) = (initiators.min(cpus), deaf.min(cpus));
    let (tables, space) = new_space(tlb);
    let at = |cpu: usize| USER_WINDOW + cpu as u64 * 4096;
    let values: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
    for cpu in 0..initiators {
        tables
            .lock()
            .user()
            .map(at(cpu), frame(0))
            .expect("nothing is mapped");
    }
    let (barrier, busy) = (Barrier::new(cpus), AtomicUsize::new(initiators));
    let tables: &Mutex<_> = &tables;
    smp::run_on_all(&|cpu| {
        // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
        unsafe { tlb.switch(&space) };
        if cpu < deaf {
            interrupts::disable();
        }
        barrier.wait(spin_loop);
        for round in 1..=if cpu < initiators { ROUNDS } else { 0 } {
            let new = frame(round);
            let exchanged = loop {
                // The lock's holder may wait for nothing, but who spins for it with interrupts off must serve.
                if let Some(mut tables) = tables.try_lock() {
                    let old = tables.user().unmap(at(cpu));
                    tables.user().map(at(cpu), new).expect("it was unmapped");
                    break old;
                }
                tlb.poll();
                spin_loop();
            };
            tlb.flush(
                &space,
                Request::range(range(tlb, at(cpu), 1, Stride::Size4K)),
            )
            .wait();
            drop(exchanged);
            values[cpu].store(round, SeqCst);
            for (other, said) in values.iter().enumerate().take(initiators) {
                // A page is not older than what its owner said before. It may be gone for a moment.
                let least = said.load(SeqCst);
                let Ok(seen) = read(at(other)) else { continue };
                assert!(
                    seen >= least && seen <= ROUNDS,
                    "CPU {cpu} saw {seen} of CPU {other} after {least}"
                );
            }
        }
        if cpu < initiators {
            busy.fetch_sub(1, SeqCst);
        }
        while busy.load(SeqCst) > 0 {
            tlb.poll();
            spin_loop();
        }
        if cpu < deaf {
            interrupts::enable();
        }
        barrier.wait(spin_loop);
        // SAFETY: the kernel's tables map the kernel.
        unsafe { tlb.unload() };
    });
    assert!(tlb.counters().flushes >= initiators as u64 * ROUNDS);
    tlb.retire(&space).expect("nobody uses the space");
}

/// Everyone flushes, with interrupts off: only waiting serves.
pub fn all_deaf<B: Backend>() {
    storm::<B>(usize::MAX, usize::MAX);
}

/// Two flush with interrupts off, the others have them on.
pub fn two_deaf_initiators<B: Backend>() {
    storm::<B>(2, 2);
}

/// One flushes; all others have interrupts off and poll.
pub fn polling_is_enough<B: Backend>() {
    storm::<B>(1, usize::MAX);
}

/// Everyone flushes with interrupts on.
pub fn all_listen<B: Backend>() {
    storm::<B>(usize::MAX, 0);
}
