//! A made-up hypervisor behind the crate's hook: a worked example of what one must write for Xen, VMware or one's own.
//!
//! Its host offers one call, `drop_translations(root, range, cpus)`: virtual CPUs are named as the guest names them, and what
//! is asked for is dropped at once where the CPU is not running, or before it runs again. It refuses when it is short of
//! memory, and can't name all address spaces.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use shootdown::{
    CpuSet, Paging, Range, Request, Stride, TlbFlusher,
    x86_64::{Carried, Concurrent, Config, Courier, Errand, ErrandScope, Features, Tlb},
};

use crate::{
    machine,
    platform::{LogX86, log, on_cpu, take_log},
};

/// The host.
mod host {
    use super::*;

    pub static SHORT_OF_MEMORY: AtomicBool = AtomicBool::new(false);
    /// Virtual CPUs that the host has registered.
    pub const CPUS: u64 = 0b0111;

    /// Whether it is done on all CPUs of the mask.
    pub fn drop_translations(root: u64, range: Option<(u64, u64)>, cpus: u64) -> bool {
        if SHORT_OF_MEMORY.load(SeqCst) || cpus & !CPUS != 0 {
            return false;
        }
        log(format!("host drops {root:#x} {range:x?} on {cpus:#b}"));
        true
    }
}

/// The courier: the host where it can, interrupts by [`Concurrent`] for the rest.
#[derive(Debug)]
struct MadeUp {
    under: Concurrent,
}

// SAFETY: the host drops what it is asked for before the CPU's next instruction, or refuses, and then no CPU is taken out.
// A range of its call is of translations only: freed tables are asked for as everything, which includes
// paging-structure caches. Roots name spaces whichever is loaded, under whichever PCID.
unsafe impl Courier for MadeUp {
    const INITIAL: Self = Self {
        under: Concurrent::INITIAL,
    };
    const CARRIES: bool = true;

    fn is_concurrent(&self) -> bool {
        self.under.is_concurrent()
    }

    fn carry<const W: usize>(
        &self,
        _me: usize,
        errand: &Errand,
        targets: &mut CpuSet<W>,
    ) -> Carried {
        let mut carried = Carried::default();
        // It can't name several spaces at once, nor global translations.
        let ErrandScope::Space { root } = errand.scope() else {
            return carried;
        };
        // Those that it knows; all of them are below 64.
        let cpus = targets.view().words()[0] & host::CPUS;
        if cpus == 0 {
            return carried;
        }
        let range = errand
            .range()
            .filter(|_| !errand.reaches_lazy())
            .map(|range| (range.start(), range.bytes()));
        carried.requests = 1;
        if host::drop_translations(root, range, cpus) {
            carried.elided = u64::from(cpus.count_ones());
            for cpu in (0..64).filter(|cpu| cpus >> cpu & 1 != 0) {
                targets.remove(cpu);
            }
        } else {
            carried.refusals = 1;
        }
        carried
    }
}

#[test]
fn a_hypervisor_of_ones_own() {
    machine!(Kernel, 4, TLB: Tlb<Kernel, MadeUp, LogX86>, served);
    TLB.init(Config::new(Features::default(), 0x1000)).unwrap();
    for cpu in 0..4 {
        on_cpu(cpu, || TLB.online().unwrap());
    }
    let space = TLB.space(0xa000).unwrap();
    for cpu in 0..4 {
        // SAFETY: nothing is translated on the host.
        on_cpu(cpu, || unsafe { TLB.switch(&space) });
    }
    take_log();
    let page = Range::new(TLB.paging(), 0x5000, 2, Stride::Size4K).unwrap();

    // CPU 0 is the initiator, CPU 3 is not known to the host.
    TLB.flush(&space, Request::range(page)).wait();
    assert_eq!(
        take_log(),
        [
            "host drops 0xa000 Some((5000, 2000)) on 0b110",
            "publish",
            "ipi [3]",
            "invlpg 0x5000",
            "invlpg 0x6000",
            "invlpg 0x5000",
            "invlpg 0x6000",
        ]
    );
    TLB.flush(&space, Request::range(page).tables_freed())
        .wait();
    assert_eq!(take_log()[0], "host drops 0xa000 None on 0b110");

    // The kernel's mappings, and a host that refuses: interrupts for all.
    TLB.flush_kernel(Request::all()).wait();
    assert_eq!(take_log()[1], "ipi [1, 2, 3]");
    host::SHORT_OF_MEMORY.store(true, SeqCst);
    TLB.flush(&space, Request::all()).wait();
    assert_eq!(take_log()[1], "ipi [1, 2, 3]");

    let counters = TLB.counters();
    assert_eq!((counters.elided_by_host, counters.ipis_sent), (4, 8));
    assert_eq!((counters.host_requests, counters.host_refusals), (3, 1));

    for cpu in 0..4 {
        // SAFETY: nothing is translated on the host.
        on_cpu(cpu, || unsafe { TLB.unload() });
    }
    TLB.retire(&space).unwrap();
}

#[test]
fn an_errand_says_what_it_is_about() {
    let page = Range::new(Paging::X86_4_LEVEL, 0x5000, 1, Stride::Size4K).unwrap();
    let request = Request::range(page).attributes_changed();
    let errand = Errand::new(ErrandScope::Space { root: 0xa000 }, request);
    assert_eq!(errand.range(), Some(&page));
    assert_eq!(errand.flags(), request.flags());
    assert!(errand.reaches_lazy());
    assert!(Errand::new(ErrandScope::Kernel, Request::range(page)).reaches_lazy());
}
