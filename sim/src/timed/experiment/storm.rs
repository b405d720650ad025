//! Every thread of each process unmaps a page of its own and touches its memory again, over and over: throughput.

use core::cell::Cell;
use std::rc::Rc;

use shootdown::{
    Request, Space, TlbFlusher,
    x86_64::{Broadcasting, Concurrent, Serial, Tlb},
};

use crate::timed::{
    costs::Costs,
    platform::TimedPlatform,
    world::{self, Setting, Spaces, TimedCourier, compute, flush, now, use_working_set},
    x86::TimedX86,
};

/// The most threads.
const MOST: usize = 128;
const WORDS: usize = MOST / 64;

/// Iterations of each thread.
const ITERATIONS: u64 = 60;

/// Iterations a second of all threads of one process together; each is `work` cycles and a flush of one page.
pub fn throughput<C: TimedCourier>(costs: Costs, threads: usize, work: u64) -> f64 {
    rate::<C>(Setting::new(costs, threads), &[threads], work, one_page)
}

/// How much faster a concurrent courier makes it than a serial one, in percent.
pub fn gain(costs: Costs, threads: usize, work: u64) -> f64 {
    let serial = throughput::<Serial>(costs, threads, work);
    let concurrent = throughput::<Concurrent>(costs, threads, work);
    100.0 * (concurrent / serial - 1.0)
}

/// Iterations a second of processes of 1, 2, 4, 8 and 16 threads side by side, where spaces that more CPUs run than
/// `threshold` are flushed by INVLPGB.
pub fn mixed(costs: Costs, threshold: u16) -> f64 {
    let setting = Setting {
        broadcast_above: threshold,
        ..Setting::new(costs, 0)
    };
    rate::<Broadcasting<Concurrent>>(setting, &[1, 2, 4, 8, 16], costs.mprotect, one_page)
}

/// As [`throughput`], of a guest with `threads` vCPUs on a host with `host_cpus` CPUs; each flush is of everything, with
/// tables freed.
pub fn overcommitted<C: TimedCourier>(costs: Costs, threads: usize, host_cpus: usize) -> f64 {
    let setting = Setting {
        host_cpus: Some(host_cpus),
        ..Setting::new(costs, threads)
    };
    let request = Request::all().tables_freed();
    rate::<C>(setting, &[threads], costs.mprotect, move |tlb, space| {
        tlb.flush(space, request).wait();
    })
}

type Flusher<C> = Tlb<TimedPlatform<MOST>, C, TimedX86, WORDS>;

fn one_page<C: TimedCourier>(tlb: &Flusher<C>, space: &Space<WORDS>) {
    flush(tlb, space, 1);
}

/// `sizes` are the processes' numbers of threads; each thread has a CPU of its own.
fn rate<C: TimedCourier>(
    mut setting: Setting,
    sizes: &[usize],
    work: u64,
    flush: impl Fn(&Flusher<C>, &Space<WORDS>) + 'static,
) -> f64 {
    let process_of: Vec<usize> = sizes
        .iter()
        .enumerate()
        .flat_map(|(process, size)| core::iter::repeat_n(process, *size))
        .collect();
    setting.cpus = process_of.len();
    let spaces = Spaces::<WORDS>::new();
    let rates = Rc::new(Cell::new(0.0));
    let sum = Rc::clone(&rates);
    world::run::<Flusher<C>, WORDS>(setting, move |tlb, cpu| {
        let space = spaces.enter(tlb, process_of[cpu]);
        // Threads do not start in step.
        compute(20_000 + 977 * cpu as u64);
        let began = now();
        for _ in 0..ITERATIONS {
            compute(work);
            use_working_set();
            flush(tlb, space);
        }
        let seconds = setting.costs.us((now() - began) as f64) / 1e6;
        sum.set(sum.get() + ITERATIONS as f64 / seconds);
    });
    rates.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_is_not_slower() {
        assert!(gain(Costs::XEON, 8, 10_000) > 0.0);
    }

    #[test]
    fn broadcasting_pays_for_many_threads() {
        let work = Costs::XEON.mprotect;
        let few = throughput::<Broadcasting<Concurrent>>(Costs::XEON, 2, work);
        let ratio = few / throughput::<Concurrent>(Costs::XEON, 2, work);
        assert!((ratio - 1.0).abs() < 0.01, "a look at the tag, no more");
        let many = throughput::<Broadcasting<Concurrent>>(Costs::XEON, 32, work);
        assert!(many > throughput::<Concurrent>(Costs::XEON, 32, work));
    }
}
