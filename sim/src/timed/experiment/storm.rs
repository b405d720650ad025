//! Every thread of one process unmaps and touches pages of its own again and again: throughput by threads.

use core::cell::Cell;
use std::rc::Rc;

use shootdown::{
    Range, Request, Space, Stride,
    x86_64::{Concurrent, Courier, Serial, Tlb},
};

use crate::timed::{
    costs::Costs,
    platform::TimedPlatform,
    world::{self, Timed, compute, now, use_working_set},
    x86::TimedX86,
};

/// The most threads.
const MOST: usize = 128;
const WORDS: usize = MOST / 64;

/// Iterations of each thread.
const ITERATIONS: u64 = 60;

/// Iterations a second of all threads together; each is `work` cycles and a flush of `pages` pages.
pub fn throughput<C: Courier>(costs: Costs, threads: usize, work: u64, pages: u64) -> f64 {
    rate::<Tlb<TimedPlatform<MOST>, C, TimedX86, WORDS>>(costs, threads, work, pages)
}

/// How much faster a concurrent courier makes it than a serial one, in percent.
pub fn gain(costs: Costs, threads: usize, work: u64) -> f64 {
    let serial = throughput::<Serial>(costs, threads, work, 1);
    let concurrent = throughput::<Concurrent>(costs, threads, work, 1);
    100.0 * (concurrent / serial - 1.0)
}

pub(super) fn rate<F: Timed<WORDS>>(costs: Costs, threads: usize, work: u64, pages: u64) -> f64 {
    let place: Rc<Cell<Option<&'static Space<WORDS>>>> = Rc::default();
    let span = Rc::new(Cell::new((u64::MAX, 0)));
    let result = Rc::clone(&span);
    world::run::<F, WORDS>(costs, threads, move |tlb, cpu| {
        let space = place.get().unwrap_or_else(|| {
            let it: &'static _ =
                Box::leak(Box::new(tlb.space(0x2000).unwrap_or_else(|error| {
                    panic!("the experiment's space: {error}")
                })));
            place.set(Some(it));
            it
        });
        // SAFETY: nothing is mapped in virtual time; the space is never freed.
        unsafe { tlb.switch(space) };
        let start = 0x10_0000 + 0x10_0000 * cpu as u64;
        let range = Range::new(tlb.paging(), start, pages, Stride::Size4K)
            .unwrap_or_else(|error| panic!("the experiment's range: {error}"));
        // Threads do not start in step.
        compute(20_000 + 977 * cpu as u64);
        let began = now();
        for _ in 0..ITERATIONS {
            compute(work);
            use_working_set();
            tlb.flush(space, Request::range(range)).wait();
        }
        let (first, last) = span.get();
        span.set((first.min(began), last.max(now())));
    });
    let (first, last) = result.get();
    let seconds = (last - first) as f64 / (costs.cycles_per_us as f64 * 1e6);
    threads as f64 * ITERATIONS as f64 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_is_not_slower() {
        assert!(gain(Costs::XEON, 8, 10_000) > 0.0);
    }
}
