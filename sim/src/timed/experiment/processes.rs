//! arm64: single-threaded processes side by side, each in an `mprotect` loop; and what a neighbour loses that only
//! computes.

use core::cell::Cell;
use std::rc::Rc;

use shootdown::aarch64;

use crate::timed::{
    arm::TimedArm,
    clockwork::Ended,
    costs::Costs,
    platform::TimedPlatform,
    world::{self, Setting, Spaces, Timed, compute, flush, now},
};

/// The most CPUs.
const MOST: usize = 256;
const WORDS: usize = MOST / 64;

/// How arm64 reaches other CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Always by broadcast.
    Broadcast,
    /// Locally while no other CPU has ever loaded the space.
    ActiveCpu,
    /// Locally while no other CPU runs the space.
    Local,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Broadcast, Self::ActiveCpu, Self::Local];

    /// The backend's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::ActiveCpu => "active_cpu",
            Self::Local => "local",
        }
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Cycles an iteration, the mean over all threads.
    pub iteration: f64,
    /// Broadcasts for each flush.
    pub broadcasts: f64,
}

/// Iterations of each thread.
const ITERATIONS: u64 = 200;

/// `processes` processes of `threads` threads, each thread on a CPU of its own; an iteration is a system call of
/// `costs.mprotect` cycles with a one-page flush.
pub fn loops(kind: Kind, costs: Costs, processes: usize, threads: usize) -> Outcome {
    let cpus = processes * threads;
    let total = Rc::new(Cell::new(0));
    let sum = Rc::clone(&total);
    let ended = on(kind, costs, cpus, threads, move |iterate, _| {
        compute(1000);
        let began = now();
        for _ in 0..ITERATIONS {
            compute(costs.mprotect);
            iterate();
        }
        sum.set(sum.get() + now() - began);
    });
    let flushes = cpus as f64 * ITERATIONS as f64;
    Outcome {
        iteration: total.get() as f64 / flushes,
        broadcasts: ended.broadcasts as f64 / flushes,
    }
}

/// How much slower a process computes while another one on another CPU is in the loop: its share of the speed it has
/// alone.
pub fn neighbour(kind: Kind, costs: Costs) -> f64 {
    const WORK: u64 = 20_000_000;
    let took = Rc::new(Cell::new(0));
    let result = Rc::clone(&took);
    let _ = on(kind, costs, 2, 1, move |iterate, cpu| {
        if cpu == 0 {
            let began = now();
            compute(WORK);
            took.set(now() - began);
        } else {
            while took.get() == 0 {
                compute(costs.mprotect);
                iterate();
            }
        }
    });
    WORK as f64 / result.get() as f64
}

/// The body of a thread: it is given a one-page flush of its process, and its CPU.
type Body = dyn Fn(&dyn Fn(), usize);

fn on(
    kind: Kind,
    costs: Costs,
    cpus: usize,
    threads: usize,
    body: impl Fn(&dyn Fn(), usize) + 'static,
) -> Ended {
    type P = TimedPlatform<MOST>;
    let body: Box<Body> = Box::new(body);
    match kind {
        Kind::Broadcast => of::<aarch64::Broadcast<P, TimedArm, WORDS>>(costs, cpus, threads, body),
        Kind::ActiveCpu => of::<aarch64::ActiveCpu<P, TimedArm, WORDS>>(costs, cpus, threads, body),
        Kind::Local => of::<aarch64::Local<P, TimedArm, WORDS>>(costs, cpus, threads, body),
    }
}

fn of<F: Timed<WORDS>>(costs: Costs, cpus: usize, threads: usize, body: Box<Body>) -> Ended {
    let spaces = Spaces::new();
    world::run::<F, WORDS>(Setting::new(costs, cpus), move |tlb, cpu| {
        let space = spaces.enter(tlb, cpu / threads);
        body(&|| flush(tlb, space, 1), cpu);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_threaded_processes_do_not_broadcast_locally() {
        let broadcast = loops(Kind::Broadcast, Costs::ARM_SERVER, 32, 1);
        assert_eq!(broadcast.broadcasts, 1.0);
        for kind in [Kind::ActiveCpu, Kind::Local] {
            let local = loops(kind, Costs::ARM_SERVER, 32, 1);
            assert_eq!(local.broadcasts, 0.0, "{kind:?}");
            assert!(local.iteration < broadcast.iteration);
        }
    }

    #[test]
    fn an_innocent_neighbour_is_left_alone() {
        assert!(neighbour(Kind::Broadcast, Costs::ARM_SERVER) < 1.0);
        assert_eq!(neighbour(Kind::Local, Costs::ARM_SERVER), 1.0);
    }
}
