//! Which instructions the flusher that broadcasts executes, in which order. One thread plays all CPUs.

use shootdown::{
    Batch, FrameArray, Gather, Paging, Range, Request, Space, Stride, TlbFlusher,
    x86_64::{Auto, Config, CourierKind, Features, GlobalError, InitError, InvlpgbIpi},
};

use crate::{
    machine,
    platform::{LogX86, on_cpu, panic_of, pins, set_registers, take_log},
};

/// A CPU that takes 8 pages at once, as the first ones with INVLPGB do.
const FEATURES: Features = {
    let mut features = without_invlpgb();
    features.invlpgb = Some(7);
    features
};

const fn without_invlpgb() -> Features {
    Features {
        pcid: true,
        invpcid: true,
        la57_enabled: false,
        global_invlpg: shootdown::x86_64::GlobalInvlpg::Works,
        invlpgb: None,
    }
}

fn config() -> Config {
    Config::new(FEATURES, 0x1000)
}

fn range(addr: u64, pages: u64) -> Range {
    Range::new(Paging::X86_4_LEVEL, addr, pages, Stride::Size4K).unwrap()
}

fn page(addr: u64, pages: u64) -> Request {
    Request::range(range(addr, pages))
}

/// Brings `cpus` CPUs online.
fn boot<F: TlbFlusher>(tlb: &F, cpus: usize) {
    for cpu in 0..cpus {
        set_registers(|registers| registers.cr3 = 0x1000);
        on_cpu(cpu, || tlb.online().unwrap());
    }
    take_log();
}

/// Loads `space` on `cpu`.
fn switch<F: TlbFlusher>(tlb: &F, cpu: usize, space: &Space) {
    // SAFETY: nothing is translated on the host.
    on_cpu(cpu, || unsafe { tlb.switch(space) });
}

/// Unloads the spaces of `cpus` CPUs.
fn unload<F: TlbFlusher>(tlb: &F, cpus: usize) {
    for cpu in 0..cpus {
        // SAFETY: nothing is translated on the host.
        on_cpu(cpu, || unsafe { tlb.unload() });
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_space_moves_to_a_global_pcid_once_enough_cpus_run_it() {
    machine!(Kernel, 4, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config()).unwrap();
    boot(&TLB, 4);
    let a = TLB.space(0xa000).unwrap();
    // Three CPUs: not above the threshold.
    for cpu in 0..3 {
        switch(&TLB, cpu, &a);
    }
    take_log();
    TLB.flush(&a, page(0x5000, 1)).wait();
    assert_eq!(
        take_log(),
        [
            "publish",
            "ipi [1, 2]",
            "invlpg 0x5000",
            "invlpg 0x5000",
            "invlpg 0x5000"
        ]
    );
    assert_eq!(a.tag(), 0);
    // Four: after the flush, all are told once more and move without dropping anything.
    switch(&TLB, 3, &a);
    take_log();
    TLB.flush(&a, page(0x5000, 1)).wait();
    let moved = "cr3 0x800000000000a007";
    assert_eq!(
        take_log()[6..],
        ["publish", "ipi [1, 2, 3]", moved, moved, moved, moved]
    );
    assert_eq!(a.tag(), 7);
    let sent = TLB.counters().ipis_sent;

    // From now on: a fence, one instruction, and its end. No interrupt, no store that others read.
    TLB.flush(&a, page(0x5000, 2)).wait();
    assert_eq!(
        take_log(),
        ["mfence", "invlpgb 0x5017 0x1 0x70000", "tlbsync"]
    );
    let counters = TLB.counters();
    assert_eq!((counters.ipis_sent, counters.broadcasts), (sent, 1));
    // A CPU that goes and comes back keeps what it has.
    let b = TLB.space(0xb000).unwrap();
    switch(&TLB, 3, &b);
    TLB.flush(&a, page(0x5000, 1)).wait();
    take_log();
    switch(&TLB, 3, &a);
    assert_eq!(take_log(), [moved]);
    // So does one that was lazy.
    on_cpu(3, || {
        let outer = TLB.lazy_enter();
        on_cpu(0, || TLB.flush(&a, page(0x5000, 1)).wait());
        take_log();
        // SAFETY: nothing is translated on the host.
        unsafe { TLB.lazy_leave(outer, &a) };
    });
    assert_eq!(take_log(), NOTHING);
    unload(&TLB, 4);
    TLB.retire(&a).unwrap();
    TLB.retire(&b).unwrap();
    assert_eq!(pins(), 0);
}

#[test]
fn a_flush_that_ends_after_its_cpu_went_offline() {
    machine!(Kernel, 3, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config().broadcast_above(1)).unwrap();
    boot(&TLB, 3);
    let a = TLB.space(0xa000).unwrap();
    for cpu in 1..3 {
        switch(&TLB, cpu, &a);
    }
    let pending = TLB.flush(&a, Request::all());
    TLB.offline();
    pending.wait();
    // Left to a CPU that can move.
    assert_eq!(a.tag(), 0);
    on_cpu(1, || TLB.flush(&a, Request::all()).wait());
    assert_eq!(a.tag(), 7);
    for cpu in 1..3 {
        // SAFETY: nothing is translated on the host.
        on_cpu(cpu, || unsafe { TLB.unload() });
    }
    on_cpu(1, || TLB.retire(&a).unwrap());
}

#[test]
fn what_a_settled_flush_names() {
    machine!(Kernel, 1, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config()).unwrap();
    boot(&TLB, 1);
    let a = TLB.space(0xa000).unwrap();
    TLB.make_global(&a).unwrap();
    take_log();
    let flush = |request| {
        TLB.flush(&a, request).wait();
        let log = take_log();
        assert_eq!((&*log[0], &**log.last().unwrap()), ("mfence", "tlbsync"));
        log[1..log.len() - 1].to_vec()
    };
    // The largest count, and one more.
    assert_eq!(flush(page(0x5000, 8)), ["invlpgb 0x5017 0x7 0x70000"]);
    assert_eq!(
        flush(page(0x5000, 9)),
        ["invlpgb 0x5017 0x7 0x70000", "invlpgb 0xd017 0x0 0x70000"]
    );
    // Up to the ceiling; then everything of the PCID, without an address.
    assert_eq!(flush(page(0x5000, 33)).len(), 5);
    assert_eq!(flush(page(0x5000, 34)), ["invlpgb 0x6 0x0 0x70000"]);
    assert_eq!(flush(Request::all()), ["invlpgb 0x6 0x0 0x70000"]);
    // Freed tables: paging-structure caches must go too.
    assert_eq!(
        flush(page(0x5000, 1).tables_freed()),
        ["invlpgb 0x5007 0x0 0x70000"]
    );
    assert_eq!(
        flush(page(0x5000, 1).attributes_changed()),
        ["invlpgb 0x5017 0x0 0x70000"]
    );
    // Large pages by large steps.
    let large = |stride| Range::new(Paging::X86_4_LEVEL, 1 << 30, 1, stride).unwrap();
    assert_eq!(
        flush(Request::range(large(Stride::Size2M))),
        ["invlpgb 0x40000017 0x80000000 0x70000"]
    );
    assert_eq!(
        flush(Request::range(large(Stride::Size1G))),
        ["invlpgb 0x6 0x0 0x70000"]
    );
    TLB.retire(&a).unwrap();
}

#[test]
fn freed_tables_where_unrelated_ones_stay_cached() {
    machine!(Kernel, 2, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    // EFER.TCE.
    set_registers(|registers| registers.efer |= 1 << 15);
    TLB.init(config()).unwrap();
    boot(&TLB, 2);
    let a = TLB.space(0xa000).unwrap();
    switch(&TLB, 0, &a);
    take_log();
    TLB.flush(&a, page(0x5000, 1).tables_freed()).wait();
    assert_eq!(take_log(), ["cr3 0xa001"]);
    TLB.make_global(&a).unwrap();
    take_log();
    TLB.flush(&a, page(0x5000, 1).tables_freed()).wait();
    TLB.flush(&a, page(0x5000, 1)).wait();
    assert_eq!(
        take_log(),
        [
            "mfence",
            "invlpgb 0x6 0x0 0x70000",
            "tlbsync",
            "mfence",
            "invlpgb 0x5017 0x0 0x70000",
            "tlbsync"
        ]
    );
    unload(&TLB, 1);
    TLB.retire(&a).unwrap();
}

#[test]
fn the_kernel() {
    machine!(Kernel, 4, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config()).unwrap();
    boot(&TLB, 4);
    let addr = 0xffff_8000_0000_0000;
    // Address, ASID and globals, no PCID: of all PCIDs, whether the mappings are global or not.
    TLB.flush_kernel(page(addr, 2)).wait();
    assert_eq!(
        take_log(),
        ["mfence", "invlpgb 0xffff80000000001d 0x1 0x0", "tlbsync"]
    );
    // Freed tables, many pages, everything: without an address.
    for request in [page(addr, 1).tables_freed(), page(addr, 34), Request::all()] {
        TLB.flush_kernel(request).wait();
        assert_eq!(take_log(), ["mfence", "invlpgb 0xc 0x0 0x0", "tlbsync"]);
    }
    assert_eq!(TLB.counters().ipis_sent, 0);
}

#[test]
fn without_pcids_only_the_kernel_is_broadcast() {
    machine!(Kernel, 2, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config().pcid(false).broadcast_above(1)).unwrap();
    boot(&TLB, 2);
    let a = TLB.space(0xa000).unwrap();
    switch(&TLB, 0, &a);
    switch(&TLB, 1, &a);
    take_log();
    TLB.flush(&a, page(0x5000, 1)).wait();
    let local = ["publish", "ipi [1]", "invlpg 0x5000", "invlpg 0x5000"];
    assert_eq!(take_log(), local);
    assert_eq!(TLB.make_global(&a), Err(GlobalError::NotBroadcasting));
    assert_eq!(TLB.pcid_use().unwrap().total, 0);
    // A PCID other than 0 would fault here.
    TLB.flush_kernel(Request::all()).wait();
    assert_eq!(take_log(), ["mfence", "invlpgb 0xc 0x0 0x0", "tlbsync"]);
    unload(&TLB, 2);
    TLB.retire(&a).unwrap();
}

#[test]
fn many_spaces_and_one_tlbsync() {
    machine!(Kernel, 2, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config()).unwrap();
    boot(&TLB, 2);
    let spaces = [0xa000, 0xb000, 0xc000].map(|root| TLB.space(root).unwrap());
    let [a, b, local] = &spaces;
    TLB.make_global(a).unwrap();
    TLB.make_global(b).unwrap();
    switch(&TLB, 1, local);
    take_log();
    let mut batch = Batch::<_, 1, 4>::new(&TLB);
    for space in [a, b, a, local] {
        batch.add(space, page(0x5000, 1));
    }
    batch.flush();
    let (in_a, in_b) = ("invlpgb 0x5017 0x0 0x70000", "invlpgb 0x5017 0x0 0x80000");
    assert_eq!(
        take_log(),
        [
            "mfence",
            in_a,
            "mfence",
            in_b,
            "mfence",
            in_a,
            "publish",
            "ipi [1]",
            "invlpg 0x5000",
            "tlbsync"
        ]
    );
    // An empty batch has nothing to wait for.
    batch.flush();
    assert_eq!(take_log(), NOTHING);
    batch.add(a, page(0x5000, 1));
    drop(batch);
    assert_eq!(take_log(), ["mfence", in_a, "tlbsync"]);
    // More spaces than there is room for.
    let mut small = Batch::<_, 1, 1>::new(&TLB);
    small.add(a, page(0x5000, 1));
    small.add(b, page(0x5000, 1));
    drop(small);
    assert_eq!(
        take_log(),
        ["mfence", in_a, "tlbsync", "mfence", in_b, "tlbsync"]
    );
    unload(&TLB, 2);
    spaces.iter().for_each(|space| TLB.retire(space).unwrap());
    assert_eq!(pins(), 0);
}

#[test]
fn every_way_out_waits() {
    machine!(Kernel, 2, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config()).unwrap();
    boot(&TLB, 2);
    let (a, dead) = (TLB.space(0xa000).unwrap(), TLB.space(0xb000).unwrap());
    TLB.make_global(&a).unwrap();
    TLB.retire(&dead).unwrap();
    take_log();
    let whole = ["mfence", "invlpgb 0x6 0x0 0x70000", "tlbsync"];
    drop(TLB.flush(&a, Request::all()));
    assert_eq!(take_log(), whole);
    // Two at once, in either order: each waits.
    let (first, second) = (TLB.flush(&a, Request::all()), TLB.flush(&a, Request::all()));
    first.wait();
    second.wait();
    assert_eq!(
        take_log().iter().filter(|what| *what == "tlbsync").count(),
        2
    );
    // A panic between start and end.
    panic_of(|| {
        let _pending = TLB.flush(&a, Request::all());
        panic!("elsewhere");
    });
    assert_eq!(take_log(), whole);
    // A batch of which a later member is refused.
    panic_of(|| {
        let mut batch = Batch::<_, 1, 4>::new(&TLB);
        batch.add(&a, Request::all());
        batch.add(&dead, Request::all());
    });
    assert_eq!(take_log(), whole);
    // A gather.
    let mut gather = Gather::new(&TLB, &a, FrameArray::<String, 4>::new());
    gather.unmapped(range(0x5000, 1), "a frame".into());
    drop(gather);
    assert_eq!(
        take_log(),
        ["mfence", "invlpgb 0x5017 0x0 0x70000", "tlbsync"]
    );
    assert_eq!(pins(), 0);
    TLB.retire(&a).unwrap();
}

#[test]
fn a_retired_space_is_refused() {
    machine!(Kernel, 2, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config()).unwrap();
    boot(&TLB, 2);
    let (a, local) = (TLB.space(0xa000).unwrap(), TLB.space(0xb000).unwrap());
    TLB.make_global(&a).unwrap();
    // A refused retirement changes nothing.
    switch(&TLB, 1, &a);
    TLB.retire(&a).unwrap_err();
    assert_eq!(a.tag(), 7);
    take_log();
    TLB.flush(&a, Request::all()).wait();
    assert_eq!(take_log(), ["mfence", "invlpgb 0x6 0x0 0x70000", "tlbsync"]);
    unload(&TLB, 2);
    for space in [&a, &local] {
        TLB.retire(space).unwrap();
        let id = space.id();
        let expected = format!("shootdown: space {id} is used after it has retired");
        let calls: [&dyn Fn(); 3] = [
            &|| TLB.flush(space, Request::all()).wait(),
            &|| switch(&TLB, 0, space),
            &|| {
                let _ = TLB.make_global(space);
            },
        ];
        for call in calls {
            assert_eq!(panic_of(call), expected);
        }
        assert_eq!(space.tag(), 0);
    }
    assert_eq!(TLB.pcid_use().unwrap().in_use, 0);
}

#[test]
fn pcids_run_out_and_are_flushed_before_they_are_used_again() {
    machine!(Kernel, 3, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config().global_pcids(2).broadcast_above(1))
        .unwrap();
    boot(&TLB, 3);
    let [a, b, c] = [0xa000, 0xb000, 0xc000].map(|root| TLB.space(root).unwrap());
    TLB.make_global(&a).unwrap();
    TLB.make_global(&b).unwrap();
    assert_eq!(TLB.make_global(&c), Err(GlobalError::Exhausted));
    assert_eq!((a.tag(), b.tag(), c.tag()), (7, 8, 0));
    // It is served by interrupts, though more CPUs run it than the threshold.
    switch(&TLB, 0, &c);
    switch(&TLB, 1, &c);
    take_log();
    TLB.flush(&c, page(0x5000, 1)).wait();
    let local = ["publish", "ipi [1]", "invlpg 0x5000", "invlpg 0x5000"];
    assert_eq!(take_log(), local);
    assert_eq!(TLB.pcid_use().unwrap().threshold, u64::MAX);
    // Lazy CPUs leave a space before its PCID is given back.
    switch(&TLB, 2, &a);
    let _outer = on_cpu(2, || TLB.lazy_enter());
    take_log();
    TLB.retire(&a).unwrap();
    assert_eq!(take_log(), ["publish", "ipi [2]", "cr3 0x8000000000001000"]);
    // The doubled threshold is 2, and two CPUs are not more.
    TLB.flush(&c, page(0x5000, 1)).wait();
    assert_eq!((c.tag(), TLB.pcid_use().unwrap().threshold), (0, 2));
    switch(&TLB, 2, &c);
    take_log();
    TLB.flush(&c, page(0x5000, 1)).wait();
    // Everything that is not global is dropped on all CPUs, then the PCID is loaded.
    assert_eq!(
        take_log()[5..],
        [
            "mfence",
            "invlpgb 0x4 0x0 0x0",
            "tlbsync",
            "publish",
            "ipi [1, 2]",
            "cr3 0x800000000000c007",
            "cr3 0x800000000000c007",
            "cr3 0x800000000000c007"
        ]
    );
    let usage = TLB.pcid_use().unwrap();
    assert_eq!((usage.total, usage.in_use), (2, 2));
    assert_eq!((usage.promoted, usage.refused, usage.resets), (3, 1, 1));
    unload(&TLB, 3);
    TLB.retire(&b).unwrap();
    TLB.retire(&c).unwrap();
}

#[test]
fn a_promotion_reaches_lazy_cpus_and_forgets_old_slots() {
    machine!(Kernel, 3, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config()).unwrap();
    boot(&TLB, 3);
    let [a, b] = [0xa000, 0xb000].map(|root| TLB.space(root).unwrap());
    switch(&TLB, 1, &a);
    let outer = on_cpu(1, || TLB.lazy_enter());
    switch(&TLB, 2, &a);
    switch(&TLB, 2, &b);
    take_log();
    TLB.make_global(&a).unwrap();
    // The lazy CPU leaves; the one that is away is left alone.
    assert_eq!(take_log(), ["publish", "ipi [1]", "cr3 0x8000000000001000"]);
    // Both come back with the global PCID, not with their own, which has old entries.
    switch(&TLB, 2, &a);
    // SAFETY: nothing is translated on the host.
    on_cpu(1, || unsafe { TLB.lazy_leave(outer, &a) });
    let global = "cr3 0x800000000000a007";
    assert_eq!(take_log(), [global, global]);
    // A second call has nothing to do.
    TLB.make_global(&a).unwrap();
    assert_eq!(take_log(), NOTHING);
    unload(&TLB, 3);
    TLB.retire(&a).unwrap();
    TLB.retire(&b).unwrap();
}

#[test]
fn a_space_kept_local() {
    machine!(Kernel, 2, TLB: InvlpgbIpi<Kernel, LogX86>, served);
    TLB.init(config().broadcast_above(1)).unwrap();
    boot(&TLB, 2);
    let [a, b] = [0xa000, 0xb000].map(|root| TLB.space(root).unwrap());
    TLB.keep_local(&a).unwrap();
    TLB.keep_local(&a).unwrap();
    assert_eq!(TLB.make_global(&a), Err(GlobalError::KeptLocal));
    for cpu in 0..2 {
        switch(&TLB, cpu, &a);
    }
    TLB.flush(&a, Request::all()).wait();
    assert_eq!(a.tag(), 0);
    assert_eq!(TLB.pcid_use().unwrap().promoted, 0);
    TLB.make_global(&b).unwrap();
    assert_eq!(TLB.keep_local(&b), Err(GlobalError::IsGlobal));
    unload(&TLB, 2);
    TLB.retire(&a).unwrap();
    TLB.retire(&b).unwrap();
}

#[test]
fn auto_takes_what_the_cpu_offers() {
    machine!(Amd, 1, WITH: Auto<Amd, LogX86>);
    WITH.init(config()).unwrap();
    assert_eq!(WITH.courier(), CourierKind::Invlpgb);
    boot(&WITH, 1);
    WITH.flush_kernel(Request::all()).wait();
    assert_eq!(take_log(), ["mfence", "invlpgb 0xc 0x0 0x0", "tlbsync"]);
    let message = panic_of(|| WITH.choose(CourierKind::Serial));
    assert_eq!(
        message,
        "shootdown: Serial was chosen after `init`: choose before it"
    );

    machine!(Other, 1, WITHOUT: Auto<Other, LogX86>);
    WITHOUT
        .init(Config::new(without_invlpgb(), 0x1000))
        .unwrap();
    assert_eq!(WITHOUT.courier(), CourierKind::Concurrent);
    assert!(WITHOUT.pcid_use().is_none());
    let space = WITHOUT.space(0xa000).unwrap();
    boot(&WITHOUT, 1);
    assert_eq!(
        WITHOUT.make_global(&space),
        Err(GlobalError::NotBroadcasting)
    );
    WITHOUT.flush_kernel(Request::all()).wait();
    assert_eq!(take_log(), ["invpcid AllWithGlobals 0 0x0"]);

    // By hand, before.
    machine!(ByHand, 1, CHOSEN: Auto<ByHand, LogX86>);
    CHOSEN.choose(CourierKind::Serial);
    CHOSEN.init(config()).unwrap();
    assert_eq!(CHOSEN.courier(), CourierKind::Serial);
    assert!(CHOSEN.pcid_use().is_none());
}

#[test]
fn a_cpu_without_invlpgb_is_refused() {
    machine!(Kernel, 1, TLB: InvlpgbIpi<Kernel, LogX86>);
    let lacking = Config::new(without_invlpgb(), 0x1000);
    assert_eq!(TLB.init(lacking), Err(InitError::NoInvlpgb));
    // Nothing was configured: it may still be.
    TLB.init(config()).unwrap();
    machine!(Other, 1, AUTO: Auto<Other, LogX86>);
    AUTO.choose(CourierKind::Invlpgb);
    assert_eq!(AUTO.init(lacking), Err(InitError::NoInvlpgb));
}
