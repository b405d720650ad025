//! A kernel in virtual time: a flusher, CPUs that are online, and what their threads do.

use std::rc::Rc;

use shootdown::{
    CpuSlot, Granule, IpiPlatform, Paging, Platform, TlbFlusher,
    aarch64::{self, policy::Policy},
    x86_64::{self, Courier, Features},
};

use super::{
    arm::TimedArm,
    clockwork::{self, Ended, with},
    costs::Costs,
    platform::set_slots,
    wait,
    x86::TimedX86,
};

/// The kernel's own root.
const KERNEL_ROOT: u64 = 0x1000;

/// A flusher that can be timed.
pub(super) trait Timed<const W: usize>: TlbFlusher<W> + 'static {
    /// Initialized.
    fn build() -> Self;
    /// The handler of the flush interrupt.
    fn serve(&self);
}

impl<P: IpiPlatform, C: Courier, const W: usize> Timed<W> for x86_64::Tlb<P, C, TimedX86, W> {
    fn build() -> Self {
        let features = Features {
            pcid: true,
            invpcid: true,
            ..Features::default()
        };
        let flusher = Self::new();
        if let Err(error) = flusher.init(x86_64::Config::new(features, KERNEL_ROOT)) {
            panic!("the experiment's configuration is bad: {error}");
        }
        flusher
    }

    fn serve(&self) {
        self.handle_interrupt();
    }
}

impl<P: Platform, M: Policy, const W: usize, const A: usize> Timed<W>
    for aarch64::Tlb<P, M, TimedArm, W, A>
{
    fn build() -> Self {
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

/// Uses the working set once: entries that were dropped are filled again.
pub(super) fn use_working_set() {
    with(super::clockwork::Clockwork::use_working_set);
}

/// Runs `thread(flusher, cpu)` on each of `cpus` CPUs, all online, until every one has returned.
pub(super) fn run<F: Timed<W>, const W: usize>(
    costs: Costs,
    cpus: usize,
    thread: impl Fn(&'static F, usize) + 'static,
) -> Ended {
    // Slots and flusher are never freed: what a body has left loaded may name them.
    let slots: &'static [CpuSlot] =
        Vec::leak((0..cpus).map(|_| CpuSlot::new()).collect::<Vec<_>>());
    let flusher: &'static Aligned<F> = Box::leak(Box::new(Aligned(F::build())));
    let flusher = &flusher.0;
    set_slots(slots);
    let thread = Rc::new(thread);
    let bodies = (0..cpus)
        .map(|cpu| {
            let thread = Rc::clone(&thread);
            Box::new(move || {
                if let Err(error) = flusher.online() {
                    panic!("CPU {cpu}: {error}");
                }
                thread(flusher, cpu);
            }) as Box<dyn FnOnce()>
        })
        .collect();
    let ended = clockwork::run(costs, KERNEL_ROOT, Rc::new(|| flusher.serve()), bodies);
    set_slots(&[]);
    ended
}

/// Begins with a cache line of its own, so that figures do not depend on the allocator.
#[repr(align(64))]
struct Aligned<T>(T);
