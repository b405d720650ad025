//! Which instructions the x86_64 backends execute, in which order.

use shootdown::{
    Paging, Range, Request, Stride, TlbFlusher,
    x86_64::{Auto, ConcurrentIpi, Config, CourierKind, Features, GlobalInvlpg, Ipi},
};

use crate::{
    machine,
    platform::{LogX86, pins, set_registers, take_log},
};

const ALL: Features = {
    let mut features = no_features();
    features.pcid = true;
    features.invpcid = true;
    features
};

const fn no_features() -> Features {
    Features {
        pcid: false,
        invpcid: false,
        la57_enabled: false,
        global_invlpg: GlobalInvlpg::Works,
        invlpgb: None,
    }
}

fn page(addr: u64, pages: u64) -> Request {
    Request::range(Range::new(Paging::X86_4_LEVEL, addr, pages, Stride::Size4K).unwrap())
}

#[test]
fn with_pcids() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>);
    // A root loaded with cache-control bits: PCIDE can't be set before they are gone.
    set_registers(|registers| registers.cr3 = 0x1018);
    TLB.init(Config::new(ALL, 0x1000)).unwrap();
    TLB.online().unwrap();
    assert_eq!(
        take_log(),
        ["cr3 0x1000", "cr4 0x20080", "invpcid AllWithGlobals 0 0x0"]
    );

    let (a, b) = (TLB.space(0xa000).unwrap(), TLB.space(0xb000).unwrap());
    // SAFETY: nothing is translated on the host.
    let switch = |space| unsafe { TLB.switch(space) };
    switch(&a);
    switch(&a);
    switch(&b);
    switch(&a);
    // Kept the second time: bit 63.
    assert_eq!(
        take_log(),
        ["cr3 0xa001", "cr3 0xb002", "cr3 0x800000000000a001"]
    );

    TLB.flush(&a, page(0x5000, 2)).wait();
    assert_eq!(take_log(), ["invlpg 0x5000", "invlpg 0x6000"]);
    TLB.flush(&a, page(0x5000, 34)).wait();
    TLB.flush(&a, Request::all()).wait();
    assert_eq!(take_log(), ["cr3 0xa001", "cr3 0xa001"]);

    // Not loaded: nothing now, all of its PCID when it is loaded again.
    TLB.flush(&b, page(0x5000, 1)).wait();
    assert_eq!(take_log(), [""; 0]);
    switch(&b);
    assert_eq!(take_log(), ["cr3 0xb002"]);

    // Kernel mappings not declared global: other PCIDs have them too.
    TLB.flush_kernel(page(0xffff_8000_0000_0000, 1)).wait();
    assert_eq!(take_log(), ["invpcid AllWithGlobals 0 0x0"]);

    // SAFETY: as above.
    unsafe { TLB.unload() };
    assert_eq!(take_log(), ["cr3 0x8000000000001000"]);
    TLB.retire(&a).unwrap();
    TLB.retire(&b).unwrap();
    assert_eq!(pins(), 0);
}

#[test]
fn kernel_ranges_where_all_mappings_are_global() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>);
    TLB.init(Config::new(ALL, 0x1000).kernel_mappings_global(true))
        .unwrap();
    TLB.online().unwrap();
    take_log();
    let kernel = 0xffff_8000_0000_0000;
    TLB.flush_kernel(page(kernel, 1)).wait();
    assert_eq!(take_log(), ["invlpg 0xffff800000000000"]);
    // Other PCIDs' paging-structure caches are out of INVLPG's reach.
    TLB.flush_kernel(page(kernel, 1).tables_freed()).wait();
    assert_eq!(take_log(), ["invpcid AllWithGlobals 0 0x0"]);
    TLB.flush_kernel(page(kernel, 34)).wait();
    assert_eq!(take_log(), ["invpcid AllWithGlobals 0 0x0"]);
}

#[test]
fn without_pcids() {
    machine!(Kernel, 2, TLB: ConcurrentIpi<Kernel, LogX86>);
    TLB.init(Config::new(no_features(), 0x1000)).unwrap();
    TLB.online().unwrap();
    // No INVPCID: global pages are turned off and on.
    assert_eq!(take_log(), ["cr4 0x0", "cr4 0x80"]);
    let space = TLB.space(0xa000).unwrap();
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.switch(&space) };
    TLB.flush(&space, Request::all()).wait();
    TLB.flush_kernel(page(0xffff_8000_0000_0000, 1).tables_freed())
        .wait();
    // SAFETY: as above.
    unsafe { TLB.unload() };
    assert_eq!(
        take_log(),
        [
            "cr3 0xa000",
            "cr3 0xa000",
            "invlpg 0xffff800000000000",
            "cr3 0x1000"
        ]
    );
    TLB.retire(&space).unwrap();
}

#[test]
fn without_global_pages_either() {
    machine!(Kernel, 1, TLB: ConcurrentIpi<Kernel, LogX86>);
    set_registers(|registers| registers.cr4 = 0);
    TLB.init(Config::new(no_features(), 0x1000)).unwrap();
    TLB.online().unwrap();
    // CR4.PGE may not exist: a load of CR3 drops everything there can be.
    assert_eq!(take_log(), ["cr3 0x1000"]);
}

#[test]
fn large_pages_are_one_instruction_each() {
    machine!(Kernel, 1, TLB: Ipi<Kernel, LogX86>);
    TLB.init(Config::new(no_features(), 0x1000).ceiling(2))
        .unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.switch(&space) };
    take_log();
    let large = |pages| Range::new(TLB.paging(), 1 << 30, pages, Stride::Size2M).unwrap();
    TLB.flush(&space, Request::range(large(2))).wait();
    assert_eq!(take_log(), ["invlpg 0x40000000", "invlpg 0x40200000"]);
    // The ceiling was lowered.
    TLB.flush(&space, Request::range(large(3))).wait();
    assert_eq!(take_log(), ["cr3 0xa000"]);
    // SAFETY: as above.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}

#[test]
fn a_lazy_cpu_catches_up_when_it_leaves() {
    machine!(Kernel, 1, TLB: Ipi<Kernel, LogX86>);
    TLB.init(Config::new(ALL, 0x1000)).unwrap();
    TLB.online().unwrap();
    let (a, b) = (TLB.space(0xa000).unwrap(), TLB.space(0xb000).unwrap());
    // SAFETY: nothing is translated on the host.
    let (switch, leave) = unsafe { (|s| TLB.switch(s), |o, s| TLB.lazy_leave(o, s)) };
    switch(&a);
    take_log();
    let outer = TLB.lazy_enter();
    let inner = TLB.lazy_enter();
    assert!(!TLB.user_access_ok());
    leave(inner, &a);
    assert!(!TLB.user_access_ok());
    leave(outer, &a);
    assert!(TLB.user_access_ok());
    assert_eq!(take_log(), [""; 0]);

    // A flush by the lazy CPU itself: it leaves the space, and loads it again afterwards.
    let outer = TLB.lazy_enter();
    TLB.flush(&a, page(0x5000, 1)).wait();
    assert_eq!(take_log(), ["cr3 0x8000000000001000"]);
    leave(outer, &a);
    assert_eq!(take_log(), ["cr3 0xa001"]);

    // Lazy mode ends with a switch as well.
    let _ = TLB.lazy_enter();
    switch(&b);
    assert!(TLB.user_access_ok());
    // SAFETY: as above.
    unsafe { TLB.unload() };
    TLB.retire(&a).unwrap();
    TLB.retire(&b).unwrap();
}

#[test]
fn auto_is_concurrent_unless_chosen() {
    machine!(Kernel, 1, TLB: Auto<Kernel, LogX86>);
    assert_eq!(TLB.courier(), CourierKind::Concurrent);
    TLB.choose(CourierKind::Serial);
    assert_eq!(TLB.courier(), CourierKind::Serial);
}

#[test]
fn counters_add_up() {
    machine!(Kernel, 4, TLB: Ipi<Kernel, LogX86>);
    TLB.init(Config::new(ALL, 0x1000)).unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.switch(&space) };
    TLB.flush(&space, page(0x5000, 3)).wait();
    TLB.flush(&space, Request::all()).wait();
    let counters = TLB.counters();
    assert_eq!((counters.flushes, counters.pages, counters.full), (2, 3, 1));
    assert_eq!(
        (counters.local, counters.remote, counters.ipis_sent),
        (2, 0, 0)
    );
    assert_eq!((counters.switches, counters.switches_flushed), (1, 1));
    assert_eq!(TLB.counters_of(0), counters);
    assert_eq!(TLB.counters_of(3), shootdown::Counters::default());
    // SAFETY: as above.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}
