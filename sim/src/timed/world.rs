//! A kernel in virtual time: a flusher, CPUs that are online, and what their threads do.

use core::cell::RefCell;
use std::{collections::HashMap, rc::Rc};

use shootdown::{
    CpuSlot, Granule, IpiPlatform, Paging, Platform, Range, Request, Space, Stride, TlbFlusher,
    aarch64::{self, policy::Policy},
    x86_64::{
        self, Broadcasting, Concurrent, Courier, Features, Serial,
        hyperv::{HyperV, HyperVFeatures, InputPage},
        kvm::{Kvm, KvmFeatures, StealTime},
    },
};

use super::{
    arm::TimedArm,
    clockwork::{self, Ended, with},
    costs::Costs,
    host::Host,
    hypercall::{TimedGuest, set_pages},
    lines::Use,
    platform::set_slots,
    wait,
    x86::TimedX86,
};

/// The kernel's own root.
const KERNEL_ROOT: u64 = 0x1000;

/// The machine of an experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub costs: Costs,
    /// CPUs, or vCPUs.
    pub cpus: usize,
    /// The host's CPUs, if they are vCPUs.
    pub host_cpus: Option<usize>,
    /// INVLPGB is used for spaces that more CPUs than this run.
    pub broadcast_above: u16,
}

impl Setting {
    pub(super) const fn new(costs: Costs, cpus: usize) -> Self {
        Self {
            costs,
            cpus,
            host_cpus: None,
            broadcast_above: x86_64::Config::DEFAULT_BROADCAST_ABOVE,
        }
    }
}

/// A courier that can be timed.
pub trait TimedCourier: Courier {
    /// Uses what the host offers.
    fn enable(&self, _cpus: usize) {}
}

impl TimedCourier for Serial {}
impl TimedCourier for Concurrent {}
impl TimedCourier for Broadcasting<Concurrent> {}

impl TimedCourier for Kvm<TimedGuest> {
    fn enable(&self, cpus: usize) {
        let features = KvmFeatures {
            present: true,
            steal_time: true,
            flush_on_entry: true,
            realtime: false,
        };
        if let Err(missing) = Kvm::enable(self, &features, cpus) {
            panic!("the host lacks: {missing}");
        }
    }
}

impl TimedCourier for HyperV<TimedGuest> {
    fn enable(&self, cpus: usize) {
        let features = HyperVFeatures {
            present: true,
            hypercalls: true,
            vp_index: true,
            remote_flush: true,
            processor_sets: true,
        };
        if let Err(missing) = HyperV::enable(self, &features, cpus) {
            panic!("the host lacks: {missing}");
        }
    }
}

/// A flusher that can be timed.
pub(super) trait Timed<const W: usize>: TlbFlusher<W> + 'static {
    /// Initialized.
    fn build(setting: &Setting) -> Self;
    /// The handler of the flush interrupt.
    fn serve(&self);
}

impl<P: IpiPlatform, C: TimedCourier, const W: usize> Timed<W> for x86_64::Tlb<P, C, TimedX86, W> {
    fn build(setting: &Setting) -> Self {
        let features = Features {
            pcid: true,
            invpcid: true,
            // Seven pages beyond the first, as on Milan.
            invlpgb: Some(7),
            ..Features::default()
        };
        let flusher = Self::new();
        let config =
            x86_64::Config::new(features, KERNEL_ROOT).broadcast_above(setting.broadcast_above);
        if let Err(error) = flusher.init(config) {
            panic!("the experiment's configuration is bad: {error}");
        }
        flusher.courier_ref().enable(setting.cpus);
        flusher
    }

    fn serve(&self) {
        self.handle_interrupt();
    }
}

impl<P: Platform, M: Policy, const W: usize, const A: usize> Timed<W>
    for aarch64::Tlb<P, M, TimedArm, W, A>
{
    fn build(_setting: &Setting) -> Self {
        let flusher = Self::new();
        let config = aarch64::Config::new(Paging::arm64(Granule::Size4K), KERNEL_ROOT);
        if let Err(error) = flusher.init(config) {
            panic!("the experiment's configuration is bad: {error}");
        }
        flusher
    }

    fn serve(&self) {}
}

/// The clock of the CPU that calls it, in cycles.
pub(super) fn now() -> u64 {
    with(|m| m.me().now)
}

/// Computes for so many cycles; interrupts and snooped broadcasts come on top.
pub(super) fn compute(cycles: u64) {
    wait::compute(cycles);
}

/// A locked instruction of the kernel's own on `word`.
pub(super) fn update(word: &u64) {
    wait::point();
    with(|m| m.charge(core::ptr::from_ref(word).addr(), Use::Update));
}

/// Uses the working set once: entries that were dropped are filled again.
pub(super) fn use_working_set() {
    with(super::clockwork::Clockwork::use_working_set);
}

/// The spaces of an experiment's processes, each made by the first thread that asks for it and never freed.
#[derive(Debug)]
pub(super) struct Spaces<const W: usize>(RefCell<HashMap<usize, &'static Space<W>>>);

impl<const W: usize> Spaces<W> {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self(RefCell::default()))
    }

    /// The space of a process, loaded on the CPU that calls this.
    pub(super) fn enter<F: Timed<W>>(&self, tlb: &'static F, process: usize) -> &'static Space<W> {
        let known = self.0.borrow().get(&process).copied();
        let space = known.unwrap_or_else(|| {
            let root = 0x2000 + 0x1000 * process as u64;
            let made = tlb
                .space(root)
                .unwrap_or_else(|error| panic!("the experiment's space: {error}"));
            let space: &'static Space<W> = Box::leak(Box::new(made));
            self.0.borrow_mut().insert(process, space);
            space
        });
        // SAFETY: nothing is mapped in virtual time; the space is never freed.
        unsafe { tlb.switch(space) };
        space
    }
}

/// Flushes `pages` pages of `space`, a range of each CPU's own, and waits.
pub(super) fn flush<F: Timed<W>, const W: usize>(tlb: &F, space: &Space<W>, pages: u64) {
    let start = 0x10_0000 * (1 + F::Platform::current_cpu() as u64);
    let range = Range::new(tlb.paging(), start, pages, Stride::Size4K)
        .unwrap_or_else(|error| panic!("the experiment's range: {error}"));
    tlb.flush(space, Request::range(range)).wait();
}

/// Runs `thread(flusher, cpu)` on each CPU, all online, until every one has returned.
pub(super) fn run<F: Timed<W>, const W: usize>(
    setting: Setting,
    thread: impl Fn(&'static F, usize) + 'static,
) -> Ended {
    let cpus = setting.cpus;
    // None of it is ever freed: what a body has left loaded may name it.
    let slots = Vec::leak((0..cpus).map(|_| CpuSlot::new()).collect::<Vec<_>>());
    let flusher: &'static Aligned<F> = Box::leak(Box::new(Aligned(F::build(&setting))));
    let flusher = &flusher.0;
    set_slots(slots);
    let host = setting.host_cpus.map(|host_cpus| {
        let steal = Vec::leak((0..cpus).map(|_| StealTime::new()).collect::<Vec<_>>());
        let input = Vec::leak((0..cpus).map(|_| InputPage::new()).collect::<Vec<_>>());
        set_pages(steal, input);
        Host::new(host_cpus, steal)
    });
    let thread = Rc::new(thread);
    let bodies = (0..cpus)
        .map(|cpu| {
            let thread = Rc::clone(&thread);
            Box::new(move || {
                if let Err(error) = flusher.online() {
                    panic!("CPU {cpu}: {error}");
                }
                thread(flusher, cpu);
                // Nobody waits for a CPU that has ended.
                // SAFETY: nothing is mapped in virtual time.
                unsafe { flusher.unload() };
            }) as Box<dyn FnOnce()>
        })
        .collect();
    let handler = Rc::new(|| flusher.serve());
    let ended = clockwork::run(setting.costs, KERNEL_ROOT, host, handler, bodies);
    set_slots(&[]);
    ended
}

/// Begins with a cache line of its own, so that figures do not depend on the allocator.
#[repr(align(64))]
struct Aligned<T>(T);
