//! One initiator, and every other CPU busy in the same space.

use core::cell::Cell;
use std::rc::Rc;

use shootdown::x86_64::{Concurrent, Serial, Tlb};

use crate::timed::{
    costs::Costs,
    platform::TimedPlatform,
    world::{self, Setting, Spaces, Timed, TimedCourier, compute, flush, now},
    x86::TimedX86,
};

/// The most CPUs.
pub const MOST: usize = 1024;
const WORDS: usize = MOST / 64;

/// What one flush costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Cycles until it is complete.
    pub latency: f64,
    /// Cycles that its interrupts take from all other CPUs together.
    pub stolen: f64,
}

/// The means of one-page flushes on `cpus` CPUs, with a serial courier and with a concurrent one.
pub fn both(costs: Costs, cpus: usize, pages: u64) -> [Cost; 2] {
    [
        one::<Serial>(costs, cpus, pages),
        one::<Concurrent>(costs, cpus, pages),
    ]
}

fn one<C: TimedCourier>(costs: Costs, cpus: usize, pages: u64) -> Cost {
    means_on::<Tlb<TimedPlatform<MOST>, C, TimedX86, WORDS>, WORDS>(costs, cpus, cpus, pages)
}

/// Flushes measured, after some that are not.
const FLUSHES: u64 = 50;
const WARM_UP: u64 = 5;
/// A stretch of computing between two looks at whether the initiator is done.
const STRETCH: u64 = 20_000;

/// The means on a machine of `cpus` CPUs, `holders` of which use the space; the others are busy elsewhere.
pub(super) fn means_on<F: Timed<W>, const W: usize>(
    costs: Costs,
    cpus: usize,
    holders: usize,
    pages: u64,
) -> Cost {
    let spaces = Spaces::<W>::new();
    let ready = Rc::new(Cell::new(0));
    let done = Rc::new(Cell::new(None));
    let result = Rc::clone(&done);
    let ended = world::run::<F, W>(Setting::new(costs, cpus), move |tlb, cpu| {
        if cpu >= holders {
            while done.get().is_none() {
                compute(STRETCH);
            }
            return;
        }
        let space = spaces.enter(tlb, 0);
        ready.set(ready.get() + 1);
        if cpu != 0 {
            while done.get().is_none() {
                compute(STRETCH);
            }
            return;
        }
        while ready.get() < holders {
            compute(STRETCH);
        }
        let mut spent = 0;
        for count in 0..WARM_UP + FLUSHES {
            compute(STRETCH);
            let began = now();
            flush(tlb, space, pages);
            if count >= WARM_UP {
                spent += now() - began;
            }
        }
        done.set(Some(spent));
    });
    let stolen: u64 = ended.cpus.iter().map(|(_, stolen, _)| stolen).sum();
    Cost {
        latency: result.get().unwrap_or(0) as f64 / FLUSHES as f64,
        stolen: stolen as f64 / (FLUSHES + WARM_UP) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_are_the_same_and_concurrent_is_faster() {
        let first = both(Costs::XEON, 8, 8);
        assert_eq!(first, both(Costs::XEON, 8, 8));
        let [serial, concurrent] = first;
        assert!(concurrent.latency < serial.latency, "{first:?}");
        assert!(serial.stolen > 0.0);
    }

    #[test]
    fn another_cpu_costs_something() {
        let [_, few] = both(Costs::XEON, 4, 1);
        let [_, many] = both(Costs::XEON, 64, 1);
        assert!(many.latency > few.latency && many.stolen > few.stolen);
    }
}
