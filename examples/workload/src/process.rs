//! Workload (c), processes: each changes the protection of its pages, and maps and unmaps them, as `mprotect`, `mmap` and
//! `munmap` do, with one thread, two, or many; and moves to other CPUs now and then.
//!
//! What is of interest is whom a flush disturbs, so the classes run one after the other, each with figures of its own.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use shootdown::{Request, TlbFlusher};

use crate::{
    barrier::Barrier,
    canary,
    class::{Class, Seen},
    machine::{Frame, Machine, PageTables},
    place::Place,
    shadow::{Epochs, State},
    tally::Tally,
    worker::{Shared, Worker},
};

/// CPUs that run a process of a single thread; more CPUs than that look on.
const RUNNING: usize = 8;
/// As many again sleep.
const SINGLE: usize = 2 * RUNNING;
const MANY: usize = 8;
pub(crate) const PAGES: usize = 8;
/// Every process comes back to the CPUs that it left.
const ROUNDS: usize = 3 * RUNNING;
const STEPS: u32 = 24;

type Cpu<'a, M, const T: usize> = Worker<'a, M, T, PAGES>;

/// What the phases of all classes share.
pub(crate) struct Phase<'a, M: Machine> {
    machine: &'a M,
    epochs: &'a Epochs,
    tally: &'a Tally,
    seed: u64,
    tables_freed: AtomicU64,
    first_loads: AtomicU64,
}

/// Runs the classes one after the other: one thread, two, many.
pub fn run<M: Machine>(machine: &M, epochs: &Epochs, tally: &Tally, seed: u64) -> [Class; 3] {
    let measure = |name, work: fn(&Phase<'_, M>)| {
        let phase = Phase::new(machine, epochs, tally, seed);
        let before = Seen::now(machine.tlb(), tally);
        work(&phase);
        Class {
            name,
            seen: Seen::now(machine.tlb(), tally).since(before),
            tables_freed: phase.tables_freed.into_inner(),
            first_loads: phase.first_loads.into_inner(),
        }
    };
    [
        measure("single", single_threaded),
        measure("two threads", |phase| threaded::<M, 2>(phase, true)),
        measure("many threads", |phase| threaded::<M, MANY>(phase, false)),
    ]
}

/// A process on each CPU, and as many asleep. In each round a process goes on on the next CPU, and from the last one to
/// sleep.
fn single_threaded<M: Machine>(phase: &Phase<'_, M>) {
    let places: [Place<M, 1, PAGES>; SINGLE] =
        core::array::from_fn(|_| Place::new(phase.machine, phase.epochs));
    let shared = phase.shared(&places);
    let cpus = phase.machine.cpus();
    let running = cpus.min(RUNNING);
    let barrier = Barrier::new(cpus);
    phase.machine.on_all_cpus(&|cpu| {
        let mut worker = Worker::new(&shared, cpu, phase.seed);
        let mut known = [false; SINGLE];
        for round in 0..ROUNDS {
            let process = (cpu + round) % (2 * running);
            let asleep = (process + running) % (2 * running);
            if cpu < running {
                worker.switch(process);
                phase.take_over(&worker, process, 0);
                phase.note_load(&mut known[process]);
            }
            // From here on each process is on one CPU, or on none.
            barrier.wait(|| worker.idle());
            if cpu < running {
                worker.read_all(process, 0);
                for _ in 0..STEPS {
                    step(phase, &mut worker, process, 0);
                }
                reclaim(&worker, asleep);
                let spins = worker.rng.u32(2..10);
                worker.be_lazy(spins);
                worker.read_all(process, 0);
            }
            barrier.wait(|| worker.idle());
        }
        worker.unload();
    });
    for place in &places {
        place.retire(phase.machine);
    }
}

/// A process of `T` threads, each on a CPU of its own as far as there are that many. In each round the threads go on on
/// the next CPU. Where they `nap`, all but one sleep for half of the round.
fn threaded<M: Machine, const T: usize>(phase: &Phase<'_, M>, nap: bool) {
    let places: [Place<M, T, PAGES>; 1] = [Place::new(phase.machine, phase.epochs)];
    let shared = phase.shared(&places);
    let cpus = phase.machine.cpus();
    let threads = cpus.min(T);
    let barrier = Barrier::new(cpus);
    phase.machine.on_all_cpus(&|cpu| {
        let mut worker = Worker::new(&shared, cpu, phase.seed);
        let mut known = false;
        for round in 0..ROUNDS {
            let thread = (cpu + round) % cpus;
            let runs = thread < threads;
            if runs {
                worker.switch(0);
                phase.take_over(&worker, 0, thread);
                phase.note_load(&mut known);
            } else {
                worker.unload();
            }
            barrier.wait(|| worker.idle());
            if runs {
                worker.read_all(0, thread);
                for _ in 0..STEPS / 2 {
                    step(phase, &mut worker, 0, thread);
                }
            }
            barrier.wait(|| worker.idle());
            let awake = runs && (!nap || thread == round % threads);
            if !awake {
                worker.unload();
            }
            barrier.wait(|| worker.idle());
            if awake {
                for _ in 0..STEPS / 2 {
                    step(phase, &mut worker, 0, thread);
                }
                worker.read_all(0, thread);
            }
            barrier.wait(|| worker.idle());
        }
        worker.unload();
    });
    places[0].retire(phase.machine);
}

impl<'a, M: Machine> Phase<'a, M> {
    pub(crate) fn new(machine: &'a M, epochs: &'a Epochs, tally: &'a Tally, seed: u64) -> Self {
        Self {
            machine,
            epochs,
            tally,
            seed,
            tables_freed: AtomicU64::new(0),
            first_loads: AtomicU64::new(0),
        }
    }

    pub(crate) fn shared<'s, const T: usize>(
        &'s self,
        places: &'s [Place<M, T, PAGES>],
    ) -> Shared<'s, M, T, PAGES> {
        Shared {
            machine: self.machine,
            places,
            epochs: self.epochs,
            tally: self.tally,
        }
    }

    /// Notes that a thread goes on on the worker's CPU.
    pub(crate) fn take_over<const T: usize>(
        &self,
        worker: &Cpu<'_, M, T>,
        place: usize,
        thread: usize,
    ) {
        let here = &worker.shared.places[place].threads[thread];
        let last = here.last_cpu.lock().replace(worker.cpu);
        if last.is_some_and(|last| last != worker.cpu) {
            self.tally.migration();
        }
    }

    fn note_load(&self, known: &mut bool) {
        if !core::mem::replace(known, true) {
            self.first_loads.fetch_add(1, Relaxed);
        }
    }
}

/// Something that needs a flush, of a page of a thread of the loaded space.
pub(crate) fn step<M: Machine, const T: usize>(
    phase: &Phase<'_, M>,
    cpu: &mut Cpu<'_, M, T>,
    place: usize,
    thread: usize,
) {
    let page = cpu.rng.usize(0..PAGES);
    match cpu.rng.u32(0..16) {
        0..10 => protect_and_unprotect(cpu, place, thread, page),
        10..15 => exchange(cpu, place, thread, page),
        _ => {
            if cpu.unmap_everything::<{ PAGES + 1 }>(place, thread) {
                phase.tables_freed.fetch_add(1, Relaxed);
            }
        }
    }
    // An emulator that runs one CPU at a time goes on to the next one here.
    cpu.idle();
    cpu.witness(3);
}

/// Makes a page inaccessible, which keeps its frame, and accessible again, and writes to it.
fn protect_and_unprotect<M: Machine, const T: usize>(
    cpu: &mut Cpu<'_, M, T>,
    place: usize,
    thread: usize,
    page: usize,
) {
    let Shared {
        machine,
        places,
        epochs,
        ..
    } = *cpu.shared;
    let (va, shadow) = places[place].page(thread, page);
    let Some(frame) = take(cpu, place, thread, page) else {
        return cpu.map(place, thread, page);
    };
    cpu.check(va, shadow);
    // Others look at it while it is inaccessible.
    cpu.idle();
    cpu.check(va, shadow);
    let epoch = epochs.next();
    shadow.begin_change(epoch, cpu.cpu);
    // The page's content has a new name: states never come back.
    frame.store(canary::tag(epoch));
    places[place]
        .tables(machine)
        .map(va, frame)
        .expect("nothing else was mapped there");
    machine
        .tlb()
        .mapped(&Place::<M, T, PAGES>::range(machine, thread, page, 1));
    shadow.holds(epoch);
    cpu.write(va, shadow);
}

/// Unmaps a page, lets its frame go to whoever takes it next, and maps another one.
fn exchange<M: Machine, const T: usize>(
    cpu: &mut Cpu<'_, M, T>,
    place: usize,
    thread: usize,
    page: usize,
) {
    drop(take(cpu, place, thread, page));
    let (va, shadow) = cpu.shared.places[place].page(thread, page);
    cpu.check(va, shadow);
    cpu.idle();
    cpu.map(place, thread, page);
}

/// Takes a page away from a process that sleeps.
fn reclaim<M: Machine>(cpu: &Cpu<'_, M, 1>, asleep: usize) {
    for page in 0..PAGES / 4 {
        drop(take(cpu, asleep, 0, page));
    }
}

/// Unmaps a page, if it is mapped, and flushes it.
fn take<M: Machine, const T: usize>(
    cpu: &Cpu<'_, M, T>,
    place: usize,
    thread: usize,
    page: usize,
) -> Option<M::Frame> {
    let Shared {
        machine,
        places,
        epochs,
        ..
    } = *cpu.shared;
    let here = &places[place];
    let (va, shadow) = here.page(thread, page);
    let before = shadow.state();
    (before != State::Gone).then(|| {
        shadow.begin_change(epochs.next(), cpu.cpu);
        let frame = here.unmap(machine, va, before);
        let range = Place::<M, T, PAGES>::range(machine, thread, page, 1);
        let request = Request::range(range).uniform_level();
        machine.tlb().flush(&here.space, request).wait();
        shadow.gone(epochs.next());
        frame
    })
}
