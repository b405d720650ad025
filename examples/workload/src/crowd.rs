//! Workload (d), crowds: one space that as many CPUs run as the kernel says, and go on running while it is measured.

use shootdown::Space;

use crate::{
    barrier::Barrier,
    class::Seen,
    machine::Machine,
    options::Options,
    place::Place,
    process::{PAGES, Phase as Work, step},
    run::{Outcome, outcome, run_rounds},
    shadow::Epochs,
    tally::Tally,
    worker::Worker,
};

/// Threads of a crowd; more CPUs than that look on.
const THREADS: usize = 16;
const ROUNDS: usize = 6;
const STEPS: u32 = 16;

/// A space with threads.
pub struct Crowd<M: Machine>(Place<M, THREADS, PAGES>);

impl<M: Machine> core::fmt::Debug for Crowd<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Crowd").field(&self.0.space).finish()
    }
}

impl<M: Machine> Crowd<M> {
    /// What the crate knows the space by.
    pub fn space(&self) -> &Space {
        &self.0.space
    }
}

/// A run that the kernel puts together itself.
#[derive(Debug)]
pub struct Session<'a, M: Machine> {
    machine: &'a M,
    epochs: Epochs,
    tally: Tally,
    options: Options,
}

impl<'a, M: Machine> Session<'a, M> {
    /// Nothing has run yet.
    pub fn new(machine: &'a M, options: &Options) -> Self {
        Self {
            machine,
            epochs: Epochs::new(),
            tally: Tally::new(),
            options: *options,
        }
    }

    /// Makes a space.
    ///
    /// # Panics
    /// When frames run out, or the flusher refuses the space.
    pub fn crowd(&self) -> Crowd<M> {
        Crowd(Place::new(self.machine, &self.epochs))
    }

    /// Has the first `cpus` CPUs run `crowd`, the others none, and returns what was counted from the moment when all had
    /// it loaded until the last one had done its work.
    ///
    /// # Panics
    /// As [`run`](crate::run()).
    pub fn run(&self, crowd: &Crowd<M>, cpus: usize) -> Seen {
        let work = Work::new(self.machine, &self.epochs, &self.tally, self.options.seed);
        let shared = work.shared(core::slice::from_ref(&crowd.0));
        let barrier = Barrier::new(self.machine.cpus());
        let now = || Seen::now(self.machine.tlb(), &self.tally);
        let measured = spin::Mutex::new(Seen::default());
        self.machine.on_all_cpus(&|cpu| {
            let mut worker = Worker::new(&shared, cpu, self.options.seed);
            if cpu < cpus {
                worker.switch(0);
            }
            barrier.wait(|| worker.idle());
            if cpu == 0 {
                *measured.lock() = now();
            }
            for round in 0..ROUNDS {
                let thread = (cpu + round) % cpus;
                barrier.wait(|| worker.idle());
                if cpu < cpus && thread < THREADS {
                    work.take_over(&worker, 0, thread);
                    worker.read_all(0, thread);
                    for _ in 0..STEPS {
                        step(&work, &mut worker, 0, thread);
                    }
                    worker.read_all(0, thread);
                }
                barrier.wait(|| worker.idle());
                // Lazy, as others may be, while those flush.
                if cpu < cpus && round % cpus == cpu {
                    let spins = worker.rng.u32(2..10);
                    worker.be_lazy(spins);
                    worker.witness(THREADS * PAGES / 2);
                }
            }
            barrier.wait(|| worker.idle());
            if cpu == 0 {
                let before = *measured.lock();
                *measured.lock() = now().since(before);
            }
            barrier.wait(|| worker.idle());
            worker.unload();
        });
        measured.into_inner()
    }

    /// Ends the space's life.
    ///
    /// # Panics
    /// When a CPU still uses it.
    pub fn retire(&self, crowd: &Crowd<M>) {
        crowd.0.retire(self.machine);
    }

    /// Runs what [`run`](crate::run()) runs; the outcome is of all that the session has run.
    ///
    /// # Panics
    /// As [`run`](crate::run()).
    pub fn finish(self, backend: &'static str) -> Outcome {
        run_rounds(self.machine, &self.epochs, &self.tally, &self.options);
        outcome(self.machine, backend, &self.tally)
    }
}
