//! Workload (a): threads of several spaces map, write, read, unmap and reuse pages, on whatever CPU takes them next.
//!
//! Frames go from one space straight to another, so a translation that outlives its flush shows another page's tag.

use shootdown::{Batch, FrameArray, Gather, Request, TlbFlusher};

use crate::{
    machine::Machine,
    place::Place,
    shadow::{Epochs, State},
    tally::Tally,
    worker::{Shared, Worker},
};

const SPACES: usize = 3;
const THREADS: usize = 4;
const PAGES: usize = 16;
/// Of all CPUs together, so that the length of a run does not depend on their number.
const STEPS: usize = 3200;

type Space<M> = Place<M, THREADS, PAGES>;
type Cpu<'a, M> = Worker<'a, M, THREADS, PAGES>;
/// The frames of a thread.
type Freed<M> = FrameArray<<M as Machine>::Frame, PAGES>;

/// Runs the workload with spaces of its own, which it retires at the end. Half of the CPUs leave lazily: what they
/// have loaded is unloaded only then.
pub fn run<M: Machine>(machine: &M, epochs: &Epochs, tally: &Tally, seed: u64) {
    let places: [Space<M>; SPACES] = core::array::from_fn(|_| Place::new(machine, epochs));
    let shared = Shared {
        machine,
        places: &places,
        epochs,
        tally,
    };
    machine.on_all_cpus(&|cpu| {
        let mut worker = Worker::new(&shared, cpu, seed);
        for _ in 0..STEPS / machine.cpus() {
            step(&mut worker);
        }
        if worker.rng.bool() {
            worker.stay_lazy();
        } else {
            worker.unload();
        }
    });
    for place in &places {
        place.retire(machine);
    }
}

fn step<M: Machine>(cpu: &mut Cpu<'_, M>) {
    // A CPU stays for some steps, or every space would be fresh from the switch.
    let place = match cpu.loaded() {
        Some(place) if cpu.rng.u32(0..16) != 0 => place,
        _ => cpu.rng.usize(0..SPACES),
    };
    cpu.switch(place);
    run_thread(cpu, place);
    // An emulator that runs one CPU at a time goes on to the next one here.
    cpu.idle();
    cpu.witness(4);
    match cpu.rng.u32(0..256) {
        0 => cpu.bounce(10),
        1..=12 => {
            let spins = cpu.rng.u32(2..40);
            cpu.be_lazy(spins);
            cpu.witness(THREADS * PAGES / 2);
        }
        _ => {}
    }
}

/// Runs a thread of the loaded space for a step, if one is free.
fn run_thread<M: Machine>(cpu: &mut Cpu<'_, M>, place: usize) {
    let threads = &cpu.shared.places[place].threads;
    let first = cpu.rng.usize(0..THREADS);
    let free = (0..THREADS).map(|n| (first + n) % THREADS);
    let Some((thread, mut last_cpu)) = free
        .filter_map(|n| threads[n].last_cpu.try_lock().map(|held| (n, held)))
        .next()
    else {
        return;
    };
    if last_cpu
        .replace(cpu.cpu)
        .is_some_and(|last| last != cpu.cpu)
    {
        cpu.shared.tally.migration();
    }
    cpu.read_all(place, thread);
    let (start, length) = (cpu.rng.usize(0..PAGES), cpu.rng.usize(1..=8));
    let pages = start..(start + length).min(PAGES);
    match cpu.rng.u32(0..16) {
        0..6 => map(cpu, place, thread, pages),
        6..13 => unmap(cpu, place, thread, pages),
        13 => {
            cpu.unmap_everything::<{ PAGES + 1 }>(place, thread);
        }
        14 => unmap_with_neighbour(cpu, place, thread, start),
        _ => unmap_in_two_spaces(cpu, place, thread, start),
    }
    cpu.read_all(place, thread);
}

fn map<M: Machine>(
    cpu: &mut Cpu<'_, M>,
    place: usize,
    thread: usize,
    pages: core::ops::Range<usize>,
) {
    for page in pages {
        let (va, shadow) = cpu.shared.places[place].page(thread, page);
        match shadow.state() {
            State::Gone => cpu.map(place, thread, page),
            _ => cpu.write(va, shadow),
        }
    }
}

/// Unmaps some pages, flushes once, and lets the frames go.
fn unmap<M: Machine>(
    cpu: &mut Cpu<'_, M>,
    place: usize,
    thread: usize,
    pages: core::ops::Range<usize>,
) {
    let Shared {
        machine,
        places,
        epochs,
        ..
    } = *cpu.shared;
    let here = &places[place];
    let mut gather = Gather::new(machine.tlb(), &here.space, Freed::<M>::new());
    for page in pages.clone() {
        let (va, shadow) = here.page(thread, page);
        let before = shadow.state();
        if before != State::Gone {
            shadow.begin_change(epochs.next(), cpu.cpu);
            gather.unmapped(
                Space::<M>::range(machine, thread, page, 1),
                here.unmap(machine, va, before),
            );
        }
    }
    let freed = gather.finish();
    cpu.settle(place, thread, pages);
    drop(freed);
}

/// Two flushes under way at once, which end in the other order.
fn unmap_with_neighbour<M: Machine>(cpu: &Cpu<'_, M>, place: usize, thread: usize, page: usize) {
    let Shared {
        machine, places, ..
    } = *cpu.shared;
    let here = &places[place];
    let other = (page + 1) % PAGES;
    let (first, second) = (
        take(cpu, place, thread, page),
        take(cpu, place, thread, other),
    );
    let pending = |page| flush_page(machine, here, thread, page);
    let started = first.is_some().then(|| pending(page));
    let started_later = second.is_some().then(|| pending(other));
    drop(started_later);
    drop(started);
    for page in [page, other] {
        cpu.settle(place, thread, page..page + 1);
    }
}

fn flush_page<'a, M: Machine>(
    machine: &M,
    here: &'a Space<M>,
    thread: usize,
    page: usize,
) -> shootdown::Pending<'a, M::Tlb> {
    machine.tlb().flush(
        &here.space,
        Request::range(Space::<M>::range(machine, thread, page, 1)),
    )
}

/// Takes a page each from two spaces and flushes both at once, as page reclaim does.
fn unmap_in_two_spaces<M: Machine>(cpu: &mut Cpu<'_, M>, place: usize, thread: usize, page: usize) {
    let Shared {
        machine, places, ..
    } = *cpu.shared;
    let other = (place + 1 + cpu.rng.usize(0..SPACES - 1)) % SPACES;
    let Some(_held) = places[other].threads[thread].last_cpu.try_lock() else {
        return;
    };
    let frames = [
        take(cpu, place, thread, page),
        take(cpu, other, thread, page),
    ];
    let mut batch = Batch::<_, 1, SPACES>::new(machine.tlb());
    for (frame, place) in frames.iter().zip([place, other]) {
        if frame.is_some() {
            batch.add(
                &places[place].space,
                Request::range(Space::<M>::range(machine, thread, page, 1)),
            );
        }
    }
    batch.flush();
    drop(batch);
    cpu.settle(place, thread, page..page + 1);
    cpu.settle(other, thread, page..page + 1);
}

/// Clears the entry of a page, if it is mapped. The flush is the caller's.
fn take<M: Machine>(
    cpu: &Cpu<'_, M>,
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
    let (va, shadow) = places[place].page(thread, page);
    let before = shadow.state();
    (before != State::Gone).then(|| {
        shadow.begin_change(epochs.next(), cpu.cpu);
        places[place].unmap(machine, va, before)
    })
}
