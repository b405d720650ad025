//! Workload (b), the thrasher: every thread maps many pages, touches one, and unmaps all of them, again and again, in
//! one space that all CPUs share. Each round is a full flush with freed tables that reaches everybody.

use crate::{
    barrier::Barrier,
    canary,
    machine::{Frame, Machine, PageTables},
    place::Place,
    shadow::{Epochs, State},
    tally::Tally,
    worker::{Shared, Worker},
};

use shootdown::TlbFlusher;

/// One a CPU; more CPUs than that look on.
const THREADS: usize = 16;
const PAGES: usize = 48;
const CHUNKS: u32 = 8;
const ROUNDS: u32 = 4;

type Space<M> = Place<M, THREADS, PAGES>;
type Cpu<'a, M> = Worker<'a, M, THREADS, PAGES>;

/// Runs the workload with a space of its own, which it retires at the end.
pub fn run<M: Machine>(machine: &M, epochs: &Epochs, tally: &Tally, seed: u64) {
    let places: [Space<M>; 1] = [Place::new(machine, epochs)];
    let shared = Shared {
        machine,
        places: &places,
        epochs,
        tally,
    };
    let cpus = machine.cpus();
    let threads = cpus.min(THREADS);
    let barrier = Barrier::new(cpus);
    machine.on_all_cpus(&|cpu| {
        let mut worker = Worker::new(&shared, cpu, seed);
        worker.switch(0);
        for round in 0..ROUNDS as usize {
            // Each round has the threads move on by one CPU.
            let thread = (cpu + round) % cpus;
            if thread < threads {
                let last = shared.places[0].threads[thread]
                    .last_cpu
                    .lock()
                    .replace(cpu);
                if last.is_some_and(|last| last != cpu) {
                    tally.migration();
                }
                for _ in 0..CHUNKS {
                    chunk(&mut worker, thread);
                    worker.idle();
                }
            }
            barrier.wait(|| worker.idle());
        }
        worker.unload();
    });
    for place in &places {
        place.retire(machine);
    }
}

fn chunk<M: Machine>(cpu: &mut Cpu<'_, M>, thread: usize) {
    let Shared {
        machine,
        places,
        epochs,
        ..
    } = *cpu.shared;
    let here = &places[0];
    for page in 0..PAGES {
        let Some(frame) = machine.frame() else { break };
        let (va, shadow) = here.page(thread, page);
        let epoch = epochs.next();
        shadow.begin_change(epoch, cpu.cpu);
        frame.store(canary::tag(epoch));
        here.tables(machine)
            .map(va, frame)
            .expect("the region is empty");
        machine
            .tlb()
            .mapped(&Space::<M>::range(machine, thread, page, 1));
        shadow.holds(epoch);
    }
    let (va, shadow) = here.page(thread, cpu.rng.usize(0..PAGES));
    if shadow.state() != State::Gone {
        cpu.write(va, shadow);
    }
    cpu.unmap_everything::<{ PAGES + 1 }>(0, thread);
    cpu.check(va, shadow);
    cpu.witness(2);
}
