//! One CPU of a workload: which space it has loaded, and how it reads.

use core::ops::Range;

use fastrand::Rng;
use shootdown::{ChangeFlags, FrameArray, Gather, TlbFlusher};

use crate::{
    canary,
    machine::{Frame, Machine, PageTables},
    place::{Place, REGION},
    shadow::{Epochs, Shadow, State, Verdict},
    tally::Tally,
};

/// What all CPUs of a workload share.
pub struct Shared<'a, M: Machine, const T: usize, const P: usize> {
    /// The machine.
    pub machine: &'a M,
    /// The spaces.
    pub places: &'a [Place<M, T, P>],
    /// Source of tags.
    pub epochs: &'a Epochs,
    /// The counts.
    pub tally: &'a Tally,
}

/// One CPU.
pub struct Worker<'a, M: Machine, const T: usize, const P: usize> {
    /// What all CPUs share.
    pub shared: &'a Shared<'a, M, T, P>,
    /// This CPU.
    pub cpu: usize,
    /// This CPU's random choices.
    pub rng: Rng,
    loaded: Option<usize>,
}

impl<'a, M: Machine, const T: usize, const P: usize> Worker<'a, M, T, P> {
    /// The worker of CPU `cpu`, which has no space loaded.
    pub fn new(shared: &'a Shared<'a, M, T, P>, cpu: usize, seed: u64) -> Self {
        // Neighbouring seeds must not give related streams: the generator's seeding mixes well enough.
        let rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ cpu as u64);
        Self {
            shared,
            cpu,
            rng,
            loaded: None,
        }
    }

    /// The space that is loaded.
    pub fn loaded(&self) -> Option<usize> {
        self.loaded
    }

    /// Loads a space; nothing to do where it is loaded.
    pub fn switch(&mut self, place: usize) {
        if self.loaded != Some(place) {
            // SAFETY: all spaces map the kernel, its code and all stacks. `places` is borrowed while the CPUs work,
            // and each space is retired before it is dropped or moved.
            unsafe {
                self.shared
                    .machine
                    .tlb()
                    .switch(&self.shared.places[place].space)
            };
            self.loaded = Some(place);
        }
    }

    /// Leaves the loaded space for the kernel's own tables.
    pub fn unload(&mut self) {
        if self.loaded.take().is_some() {
            // SAFETY: the kernel's tables map its code and all stacks.
            unsafe { self.shared.machine.tlb().unload() };
        }
    }

    /// Borrows the loaded space for a while without using it, as an idle CPU does.
    pub fn be_lazy(&mut self, spins: u32) {
        let Some(place) = self.loaded else { return };
        let tlb = self.shared.machine.tlb();
        let space = &self.shared.places[place].space;
        let outer = tlb.lazy_enter();
        let inner = self.rng.bool().then(|| tlb.lazy_enter());
        for _ in 0..spins {
            self.idle();
        }
        // SAFETY: as in `switch`; this space was in use before.
        unsafe {
            if let Some(inner) = inner {
                tlb.lazy_leave(inner, space);
            }
            tlb.lazy_leave(outer, space);
        }
    }

    /// Leaves the space loaded, and unused until the next switch.
    pub fn stay_lazy(self) {
        if self.loaded.is_some() {
            // The next `switch` on this CPU, or `retire`, ends it.
            let _outer = self.shared.machine.tlb().lazy_enter();
        }
    }

    /// Takes this CPU offline and online again.
    ///
    /// # Panics
    /// When the CPU does not come online again.
    pub fn bounce(&mut self, spins: u32) {
        let tlb = self.shared.machine.tlb();
        self.loaded = None;
        tlb.offline();
        for _ in 0..spins {
            self.shared.machine.relax();
        }
        tlb.online().expect("the CPU was online before");
    }

    /// One turn of a waiting loop.
    pub fn idle(&self) {
        self.shared.machine.relax();
        self.shared.machine.tlb().poll();
    }

    /// Reads a page of the loaded space and counts what came.
    pub fn check(&self, va: u64, shadow: &Shadow) -> Verdict {
        let verdict = shadow.check(self.shared.machine, va);
        self.shared.tally.read(verdict, shadow, self.cpu);
        verdict
    }

    /// Reads random pages of the loaded space, whoever changes them.
    pub fn witness(&mut self, reads: usize) {
        let Some(place) = self.loaded else { return };
        for _ in 0..reads {
            let thread = self.rng.usize(0..=T);
            let page = if thread == T { 0 } else { self.rng.usize(0..P) };
            let (va, shadow) = self.shared.places[place].page(thread, page);
            self.check(va, shadow);
        }
    }

    /// Maps a frame at a page that is [`State::Gone`], and writes to it. The caller runs the thread and has its
    /// space loaded. Does nothing when no frame is left.
    ///
    /// # Panics
    /// When page tables run out, or something else is mapped there.
    pub fn map(&mut self, place: usize, thread: usize, page: usize) {
        let Shared {
            machine, epochs, ..
        } = *self.shared;
        let (va, shadow) = self.shared.places[place].page(thread, page);
        let Some(frame) = machine.frame() else { return };
        let epoch = epochs.next();
        shadow.begin_change(epoch, self.cpu);
        frame.store(canary::tag(epoch));
        self.shared.places[place]
            .tables(machine)
            .map(va, frame)
            .expect("the page was unmapped");
        machine
            .tlb()
            .mapped(&Place::<M, T, P>::range(machine, thread, page, 1));
        shadow.holds(epoch);
        self.write(va, shadow);
    }

    /// Writes a new tag to a page that is mapped, unless reading it shows that the write would go astray.
    pub fn write(&mut self, va: u64, shadow: &Shadow) {
        let before = shadow.state();
        if self.check(va, shadow) != Verdict::Fresh {
            return;
        }
        let epoch = self.shared.epochs.next();
        shadow.begin_change(epoch, self.cpu);
        match self.shared.machine.write(va, canary::tag(epoch)) {
            Ok(()) => shadow.holds(epoch),
            Err(_) => {
                // The page still holds the tag it held, so this says so again.
                self.shared.tally.read(Verdict::Stale, shadow, self.cpu);
                if let State::Holds(tag) = before {
                    shadow.holds(canary::epoch(tag));
                }
            }
        }
        self.check(va, shadow);
    }

    /// Reads all pages of a thread of the loaded space.
    pub fn read_all(&self, place: usize, thread: usize) {
        for page in 0..P {
            let (va, shadow) = self.shared.places[place].page(thread, page);
            self.check(va, shadow);
        }
    }

    /// Unmaps all that a thread has and its page table too, flushes once, and lets the frames go. `B` is the number
    /// of pages and one. The caller runs the thread. Whether there was anything to unmap.
    ///
    /// # Panics
    /// When there are more frames than that.
    pub fn unmap_everything<const B: usize>(&mut self, place: usize, thread: usize) -> bool {
        let Shared {
            machine,
            places,
            epochs,
            ..
        } = *self.shared;
        let here = &places[place];
        let mut gather = Gather::new(machine.tlb(), &here.space, FrameArray::<M::Frame, B>::new());
        for shadow in &here.threads[thread].pages {
            if shadow.state() != State::Gone {
                shadow.begin_change(epochs.next(), self.cpu);
            }
        }
        let mut changed = false;
        here.tables(machine).unmap_with_tables(
            M::WINDOW + thread as u64 * REGION,
            P,
            &mut |frame| {
                assert!(
                    gather.push(frame).is_ok(),
                    "a thread has no more than {B} frames"
                );
                changed = true;
            },
        );
        if changed {
            gather.changed_with(
                Place::<M, T, P>::region(machine, thread),
                ChangeFlags::TABLES_FREED,
            );
        }
        let freed = gather.finish();
        self.settle(place, thread, 0..P);
        drop(freed);
        changed
    }

    /// Says of pages that were being unmapped that their flush has completed.
    pub fn settle(&self, place: usize, thread: usize, pages: Range<usize>) {
        for page in pages {
            let (_, shadow) = self.shared.places[place].page(thread, page);
            if shadow.state() == State::Changing {
                shadow.gone(self.shared.epochs.next());
            }
        }
    }
}
