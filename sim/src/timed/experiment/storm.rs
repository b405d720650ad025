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

/// How long threads go on, in cycles.
const LONG: u64 = 3_000_000;
/// How many time slices the vCPUs of an overcommitted guest go on.
const SLICES: u64 = 12;

/// Iterations a second of all threads of one process together; each is `work` cycles and a flush of one page.
pub fn throughput<C: TimedCourier>(costs: Costs, threads: usize, work: u64) -> f64 {
    rate::<C>(Setting::new(costs, threads), &[threads], work, 0, one_page)
}

/// As [`throughput`], where each iteration also holds for `outside` cycles a lock that has nothing to do with flushes.
pub fn behind_a_lock<C: TimedCourier>(
    costs: Costs,
    threads: usize,
    work: u64,
    outside: u64,
) -> f64 {
    rate::<C>(
        Setting::new(costs, threads),
        &[threads],
        work,
        outside,
        one_page,
    )
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
    rate::<Broadcasting<Concurrent>>(setting, &[1, 2, 4, 8, 16], costs.mprotect, 0, one_page)
}

/// As [`throughput`], of a guest with `threads` vCPUs on a host with `host_cpus` CPUs; each flush is of everything, with
/// tables freed.
pub fn overcommitted<C: TimedCourier>(costs: Costs, threads: usize, host_cpus: usize) -> f64 {
    let setting = Setting {
        host_cpus: Some(host_cpus),
        ..Setting::new(costs, threads)
    };
    let request = Request::all().tables_freed();
    rate::<C>(setting, &[threads], costs.mprotect, 0, move |tlb, space| {
        tlb.flush(space, request).wait();
    })
}

/// What the threads of a process share besides their page table.
struct Locks {
    /// The reader count of each process's lock of its mappings (Linux's `mmap_lock`), each on a line of its own.
    readers: &'static [Line],
    /// Until when the lock that has nothing to do with flushes is held, and for how long each holds it.
    outside: (Cell<u64>, u64),
}

/// A word that has its cache line for itself.
#[repr(align(64))]
struct Line(u64);

impl Locks {
    fn new(processes: usize, outside: u64) -> Self {
        Self {
            readers: Vec::leak((0..processes).map(|_| Line(0)).collect::<Vec<_>>()),
            outside: (Cell::new(0), outside),
        }
    }

    /// An iteration takes the lock of the mappings for reading twice, in the system call and in the page fault, and gives it
    /// back twice; then it waits for its turn at the other lock, first come, first served.
    fn pass(&self, process: usize) {
        for _ in 0..4 {
            world::update(&self.readers[process].0);
        }
        let (free_at, held) = (&self.outside.0, self.outside.1);
        if held != 0 {
            let end = free_at.get().max(now()) + held;
            free_at.set(end);
            compute(end - now());
        }
    }
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
    outside: u64,
    flush: impl Fn(&Flusher<C>, &Space<WORDS>) + 'static,
) -> f64 {
    let process_of: Vec<usize> = sizes
        .iter()
        .enumerate()
        .flat_map(|(process, size)| core::iter::repeat_n(process, *size))
        .collect();
    setting.cpus = process_of.len();
    let long = match setting.host_cpus {
        Some(_) => SLICES * setting.costs.time_slice,
        None => LONG,
    };
    let spaces = Spaces::<WORDS>::new();
    let lock = Locks::new(sizes.len(), outside);
    let rates = Rc::new(Cell::new(0.0));
    let sum = Rc::clone(&rates);
    world::run::<Flusher<C>, WORDS>(setting, move |tlb, cpu| {
        let space = spaces.enter(tlb, process_of[cpu]);
        // Threads do not start in step.
        compute(20_000 + 977 * cpu as u64);
        let began = now();
        let mut iterations = 0;
        while now() < began + long {
            lock.pass(process_of[cpu]);
            compute(work);
            use_working_set();
            flush(tlb, space);
            iterations += 1;
        }
        let seconds = setting.costs.us((now() - began) as f64) / 1e6;
        sum.set(sum.get() + f64::from(iterations) / seconds);
    });
    rates.get()
}

#[cfg(test)]
mod tests {
    use shootdown::x86_64::{hyperv::HyperV, kvm::Kvm};

    use super::*;
    use crate::timed::TimedGuest;

    #[test]
    fn broadcasting_pays_for_many_threads() {
        let work = Costs::XEON.mprotect;
        let few = throughput::<Broadcasting<Concurrent>>(Costs::XEON, 2, work);
        let ratio = few / throughput::<Concurrent>(Costs::XEON, 2, work);
        assert!(
            (ratio - 1.0).abs() < 0.05,
            "two threads are below the threshold"
        );
        let many = throughput::<Broadcasting<Concurrent>>(Costs::XEON, 32, work);
        assert!(many > throughput::<Concurrent>(Costs::XEON, 32, work));
    }

    #[test]
    fn a_host_that_flushes_on_entry_saves_waiting_for_a_turn() {
        let costs = Costs::XEON;
        let interrupts = overcommitted::<Concurrent>(costs, 4, 2);
        let marked = overcommitted::<Kvm<TimedGuest>>(costs, 4, 2);
        let called = overcommitted::<HyperV<TimedGuest>>(costs, 4, 2);
        assert!(marked > 2.0 * interrupts, "{marked} against {interrupts}");
        assert!(called > 2.0 * interrupts, "{called} against {interrupts}");
    }
}
