//! The machine of one execution: page-table entries, frames, and CPUs with TLBs.
//!
//! ```text
//! entry   a word that initiators store to and walkers load from, both relaxed
//! TLB     private to its CPU: filled by a load of the entry, emptied by the instructions
//! frame   what the entry mapped at first. Reused once the flush is complete; then a CPU that still gets there
//!         through its TLB, or through a walk that saw the old entry, is caught
//! ```
//!
//! All accesses to entries, frames and interrupt lines are relaxed, so whatever order there is comes from the
//! shipping code. The instructions order nothing by themselves, though on hardware INVLPG and writes of CR3 do; for the
//! models that broadcast see [`broadcast`].
//!
//! An interrupt can't preempt a loom thread: its line is a word which the target looks at between two steps.

use std::{
    cell::{Cell, UnsafeCell},
    mem::ManuallyDrop,
    sync::{
        Mutex,
        atomic::{AtomicU64 as Private, Ordering::Relaxed},
    },
};

use loom::{
    sync::atomic::AtomicU64,
    thread::{self, JoinHandle},
};
use shootdown::{
    Outer, Platform, Request, Scope, Space, TlbFlusher, Waiting,
    x86_64::{
        self, Any, Config, CourierKind, Features,
        kvm::{Kvm, KvmFeatures},
    },
};

use crate::{
    broadcast::{self, Effect},
    cpu::{Before, Cpu, KERNEL_ROOT, ROOT_A, ROOT_B},
    explore::STALE,
    page::{PAGES, Page, USER_PAGES},
    platform::{CPUS, Kernel, Model, Steal},
};

/// An entry that maps the first frame.
const OLD: u64 = 1;
/// An entry that does not map it any more.
const NEW: u64 = 2;

/// Everything of one execution. The first space has the pages, the second one none.
pub struct Machine {
    pub tlb: Tlb,
    a: UnsafeCell<ManuallyDrop<Space>>,
    b: ManuallyDrop<Space>,
    cpus: [Cpu; CPUS],
    entries: [AtomicU64; PAGES],
    /// Not 0 once the frame is reused.
    frames: [AtomicU64; PAGES],
    /// How many CPUs have nothing left to do but to serve.
    finished: AtomicU64,
    before: Private,
    /// When broadcasts take effect.
    pub effect: Private,
    /// What another CPU does once while this one waits.
    meanwhile: Mutex<Option<fn()>>,
}

loom::lazy_static! {
    /// Made anew for each execution.
    static ref MACHINE: Machine = Machine::new();
}

loom::thread_local! {
    static CURRENT: Cell<usize> = Cell::new(0);
}

/// The flusher; its courier is the concurrent one unless another is chosen, and KVM's only once it is enabled.
type Tlb = x86_64::Tlb<Kernel, Kvm<Steal, Any>, Model>;

/// A space that a failing execution may forget: it must not be dropped before it has retired.
fn space(root: u64) -> ManuallyDrop<Space> {
    // Only a flusher that is initialized makes spaces; they do not care which.
    let maker = Tlb::new();
    maker.init(config()).unwrap();
    ManuallyDrop::new(maker.space(root).unwrap())
}

/// A flush under way, which must be [completed](Machine::complete) by the CPU that posted it. Unlike a `Pending` it may
/// be dropped while a panic unwinds.
pub struct Posted {
    generation: u64,
    reach: <Tlb as TlbFlusher>::Reach,
}

/// The machine of this execution.
pub fn machine() -> &'static Machine {
    &MACHINE
}

/// The configuration of the models: PCIDs, and a kernel that is mapped global.
pub fn config() -> Config {
    let features = Features {
        pcid: true,
        invpcid: true,
        ..Features::default()
    };
    Config::new(features, KERNEL_ROOT).kernel_mappings_global(true)
}

/// Starts the machine with CPUs `0..cpus` online.
pub fn boot(cpus: usize, config: Config) -> &'static Machine {
    let machine = machine();
    machine.tlb.init(config).unwrap();
    for cpu in 0..cpus {
        on(cpu, || machine.tlb.online().unwrap());
    }
    machine
}

/// Lets this thread be CPU `cpu` while `f` runs: for what happened before the CPUs race.
pub fn on<R>(cpu: usize, f: impl FnOnce() -> R) -> R {
    let before = CURRENT.with(|current| current.replace(cpu));
    let result = f();
    CURRENT.with(|current| current.set(before));
    result
}

/// The CPU that this thread is.
pub fn current_cpu() -> usize {
    CURRENT.with(Cell::get)
}

/// Starts CPU `cpu`.
pub fn start<R: 'static>(cpu: usize, f: impl FnOnce() -> R + 'static) -> JoinHandle<R> {
    thread::spawn(move || on(cpu, f))
}

impl Machine {
    fn new() -> Self {
        Self {
            tlb: Tlb::new(),
            a: UnsafeCell::new(space(ROOT_A)),
            b: space(ROOT_B),
            cpus: std::array::from_fn(|_| Cpu::new()),
            entries: std::array::from_fn(|_| AtomicU64::new(OLD)),
            frames: std::array::from_fn(|_| AtomicU64::new(0)),
            finished: AtomicU64::new(0),
            before: Private::new(Before::Nothing as u64),
            effect: Private::new(Effect::None as u64),
            meanwhile: Mutex::new(None),
        }
    }

    /// The space that has the user pages.
    pub fn a(&'static self) -> &'static Space {
        // SAFETY: only `replace_a` writes, and who calls it has retired the space, or is a twin that must be caught.
        unsafe { &*self.a.get() }
    }

    /// Makes another space in the memory of the first one.
    pub fn replace_a(&'static self) {
        // SAFETY: nobody uses the space that was here, since it has retired; where a twin left that out, another
        // space of the same type is found here.
        unsafe { *self.a.get() = space(ROOT_A) };
    }

    /// The other space.
    pub fn b(&'static self) -> &'static Space {
        &self.b
    }

    /// Chooses the courier for CPUs that run.
    pub fn choose(&self, kind: CourierKind) {
        self.tlb.courier_ref().under().choose(kind);
    }

    /// From now on the CPUs are KVM's.
    pub fn virtualize(&self) {
        let offered = KvmFeatures {
            present: true,
            steal_time: true,
            flush_on_entry: true,
            realtime: false,
        };
        self.tlb.courier_ref().enable(&offered, 2).unwrap();
    }

    /// KVM lets another vCPU run on this one's CPU for a while.
    pub fn preempt(&self) {
        self.me().steal_time.host_stops();
        if self.me().steal_time.host_enters() {
            for cached in self.me().tlb.as_flattened() {
                cached.store(0, Relaxed);
            }
        }
    }

    /// Ends a wait.
    pub fn wait_leave(&self, waiting: Waiting) {
        // SAFETY: as for `switch`.
        unsafe { self.tlb.wait_leave(waiting) }
    }

    /// Chooses what CPUs do by themselves.
    pub fn set_before(&self, before: Before) {
        self.before.store(before as u64, Relaxed);
    }

    /// From now on read-modify-writes are no full barriers on `cpu`: `barrier_after_rmw` does nothing there.
    pub fn weaken(&self, cpu: usize) {
        self.cpus[cpu].weak.store(1, Relaxed);
    }

    /// Chooses when broadcasts take effect.
    pub fn set_effect(&self, effect: Effect) {
        self.effect.store(effect as u64, Relaxed);
    }

    /// Lets the next turn of a waiting loop run `f`, which plays another CPU.
    pub fn set_meanwhile(&self, f: fn()) {
        *self.meanwhile.lock().unwrap() = Some(f);
    }

    /// Runs what was set, once.
    pub fn run_meanwhile(&self) {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(f) = meanwhile {
            f();
        }
    }

    /// All CPUs.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// CPU number `cpu`.
    pub fn cpu(&self, cpu: usize) -> &Cpu {
        &self.cpus[cpu]
    }

    /// The CPU that this thread is.
    pub fn me(&self) -> &Cpu {
        self.cpu(current_cpu())
    }

    /// Loads `space` on this CPU.
    pub fn switch(&self, space: &'static Space) {
        // SAFETY: no tables translate anything here, and a space of the machine lives as long as its execution.
        unsafe { self.tlb.switch(space) }
    }

    /// Leaves lazy mode for `space`.
    pub fn lazy_leave(&self, outer: Outer, space: &'static Space) {
        // SAFETY: as for `switch`.
        unsafe { self.tlb.lazy_leave(outer, space) }
    }

    /// Loads the kernel's root on this CPU. It need not serve afterwards, unless it is for the kernel.
    pub fn unload(&self) {
        // SAFETY: as for `switch`.
        unsafe { self.tlb.unload() }
    }

    /// Reads or writes through `page`, which this CPU has mapped.
    pub fn access(&self, page: Page) {
        let cached = self.me().cached(page);
        if cached.load(Relaxed) == 0 {
            self.fill(page);
        }
        // Looked at last, in one step with the entry: a broadcast may drop that at any time.
        let reused = self.frames[page as usize].load(Relaxed) != 0;
        if cached.load(Relaxed) == OLD {
            assert!(!reused, "{STALE}: {page:?} on CPU {}", current_cpu());
        }
    }

    /// Walks the tables.
    pub fn fill(&self, page: Page) {
        let walk = || self.entries[page as usize].load(Relaxed);
        self.me()
            .cached(page)
            .store(broadcast::walk(self, walk), Relaxed);
    }

    /// Stores a new entry.
    pub fn change(&self, page: Page) {
        self.entries[page as usize].store(NEW, Relaxed);
    }

    /// Looks at the entry as memory, and says whether it is the new one.
    pub fn is_changed(&self, page: Page) -> bool {
        self.entries[page as usize].load(Relaxed) == NEW
    }

    /// Reuses the frame that the old entry mapped: the flush is complete.
    pub fn reuse(&self, page: Page) {
        self.frames[page as usize].store(1, Relaxed);
    }

    /// Changes `page` of space A, flushes it and reuses the frame.
    pub fn unmap(&'static self, page: Page) {
        self.unmap_with(page, page.request());
    }

    /// As [`unmap`](Self::unmap), by another request.
    pub fn unmap_with(&'static self, page: Page, request: Request) {
        self.change(page);
        self.tlb.flush(self.a(), request).wait();
        self.reuse(page);
    }

    /// Begins to flush by `request` without waiting. A model with three CPUs has no more than one that spins: loom
    /// would let two of them spin by turns for ever.
    pub fn post(&'static self, request: Request) -> Posted {
        let scope = Scope::Space(self.a());
        let mut reach = Default::default();
        let generation = self.tlb.announce(scope, &request, &mut reach);
        self.tlb.dispatch(&mut reach);
        Posted { generation, reach }
    }

    /// Waits for what this CPU has posted.
    pub fn complete(&'static self, posted: &Posted) {
        let scope = Scope::Space(self.a());
        self.tlb.complete(scope, posted.generation, &posted.reach);
    }

    /// Takes the interrupt, if there is one.
    pub fn take_interrupt(&self) {
        if self.me().interrupt.swap(0, Relaxed) != 0 {
            self.tlb.handle_interrupt();
        }
    }

    /// Serves without being asked, as a spurious interrupt makes a CPU do.
    pub fn serve(&self) {
        self.tlb.handle_interrupt();
    }

    /// Says that this CPU has nothing left to do, and takes interrupts until `cpus` CPUs have said so.
    pub fn finish(&self, cpus: u64) {
        self.finished.fetch_add(1, Relaxed);
        loop {
            self.take_interrupt();
            if self.finished.load(Relaxed) == cpus {
                return;
            }
            Kernel::relax();
        }
    }

    /// Uses what the TLB holds of the space that is loaded, as hardware may at any time.
    pub fn speculate(&self) {
        let me = self.me();
        if me.root() == ROOT_A {
            for page in USER_PAGES {
                if me.cached(page).load(Relaxed) != 0 {
                    self.access(page);
                }
            }
        }
    }

    /// What a CPU does by itself.
    pub fn act_by_itself(&self) {
        let before = self.before.load(Relaxed);
        let nmi = before == Before::Nmi as u64 && self.tlb.user_access_ok();
        if nmi || before == Before::Speculation as u64 {
            self.speculate();
        }
    }
}
