//! Which instructions the arm64 backend executes, in which order.

use shootdown::{
    Batch, Granule, OnlineError, Paging, Range, Request, Stride, TlbFlusher,
    aarch64::{ActiveCpu, Broadcast, Config, InitError, Local, MAX_TLBI_OPERATIONS},
};

use crate::{
    machine,
    platform::{LogArm, become_cpu, set_registers, take_log},
};

const PAGING: Paging = Paging::arm64(Granule::Size4K);
const EMPTY: [&str; 0] = [];

fn pages(addr: u64, pages: u64) -> Request {
    Request::range(Range::new(PAGING, addr, pages, Stride::Size4K).unwrap())
}

#[test]
fn flushes_of_a_space() {
    machine!(Kernel, 2, TLB: Broadcast<Kernel, LogArm>);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    assert_eq!(
        take_log(),
        ["dsb ishst", "tlbi Vmalle1 0x0", "dsb nsh", "isb"]
    );
    let space = TLB.space(0xa000).unwrap();
    assert_eq!(space.tag(), 0, "none before it is loaded");
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.switch(&space) };
    // A new ASID: visible before walks with it begin.
    assert_eq!(
        take_log(),
        [
            "ttbr0 0x1000",
            "isb",
            "dsb ish",
            "ttbr0 0x100000000a000",
            "isb"
        ]
    );
    assert_eq!(space.tag(), 1);
    // SAFETY: as above.
    unsafe { TLB.switch(&space) };
    assert_eq!(take_log(), EMPTY);

    let pending = TLB.flush(&space, pages(0x5000, 2));
    assert_eq!(
        take_log(),
        [
            "dsb ishst",
            "tlbi Vale1Is 0x1000000000005",
            "tlbi Vale1Is 0x1000000000006"
        ]
    );
    pending.wait();
    assert_eq!(take_log(), ["dsb ish"]);
    TLB.flush(&space, pages(0x5000, 1).tables_freed()).wait();
    assert_eq!(
        take_log(),
        ["dsb ishst", "tlbi Vae1Is 0x1000000000005", "dsb ish"]
    );
    for whole in [Request::all(), pages(0x5000, MAX_TLBI_OPERATIONS)] {
        TLB.flush(&space, whole).wait();
        assert_eq!(
            take_log(),
            ["dsb ishst", "tlbi Aside1Is 0x1000000000000", "dsb ish"]
        );
    }

    // Lazy: the reserved root with the reserved ASID, so nothing of the space is loaded.
    let outer = TLB.lazy_enter();
    assert!(!TLB.user_access_ok());
    // SAFETY: as above.
    unsafe { TLB.lazy_leave(outer, &space) };
    let reserved = ["ttbr0 0x1000", "isb"];
    let log = take_log();
    assert_eq!(log[..2], reserved, "entered");
    assert_eq!(log[2..4], reserved, "on the way from root to root");
    assert_eq!(log[4..], ["ttbr0 0x100000000a000", "isb"]);
    // SAFETY: as above.
    unsafe { TLB.unload() };
    take_log();
    TLB.retire(&space).unwrap();
    assert_eq!(
        take_log(),
        ["dsb ishst", "tlbi Aside1Is 0x1000000000000", "dsb ish"]
    );
}

#[test]
fn flushes_of_the_kernel_end_in_an_isb() {
    machine!(Kernel, 1, TLB: Broadcast<Kernel, LogArm>);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    take_log();
    let kernel = 0xffff_0000_0000_1000;
    TLB.flush_kernel(pages(kernel, 1)).wait();
    TLB.flush_kernel(pages(kernel, 1).tables_freed()).wait();
    TLB.flush_kernel(Request::all()).wait();
    assert_eq!(
        take_log(),
        [
            "dsb ishst",
            "tlbi Vaale1Is 0xff000000001",
            "dsb ish",
            "isb",
            "dsb ishst",
            "tlbi Vaae1Is 0xff000000001",
            "dsb ish",
            "isb",
            "dsb ishst",
            "tlbi Vmalle1Is 0x0",
            "dsb ish",
            "isb",
        ]
    );
    TLB.flush_local(0x5000);
    assert_eq!(
        take_log(),
        ["dsb ishst", "tlbi Vaae1 0x5", "dsb nsh", "isb"]
    );
    TLB.mapped(&Range::new(PAGING, 0x5000, 1, Stride::Size4K).unwrap());
    assert_eq!(take_log(), ["dsb ishst", "isb"]);
}

#[test]
fn a_batch_issues_many_and_waits_for_each_member() {
    machine!(Kernel, 1, TLB: Broadcast<Kernel, LogArm>);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    let (a, b) = (TLB.space(0xa000).unwrap(), TLB.space(0xb000).unwrap());
    take_log();
    let mut batch = Batch::<_, 1, 8>::new(&TLB);
    batch.add(&a, pages(0x5000, 1));
    batch.add(&b, pages(0x5000, 1));
    batch.flush();
    assert!(batch.is_empty());
    let log = take_log();
    assert_eq!(
        log.iter().filter(|what| what.starts_with("tlbi")).count(),
        2
    );
    assert_eq!(log.last().unwrap(), "dsb ish");
    drop(batch);
    TLB.retire(&a).unwrap();
    TLB.retire(&b).unwrap();
}

#[test]
fn the_regime_is_checked() {
    machine!(Kernel, 2, TLB: Broadcast<Kernel, LogArm>);
    let config = Config::new(PAGING, 0x1000);
    let (e2h, tge) = (1 << 34, 1 << 27);
    for hcr in [0, e2h, tge] {
        set_registers(|registers| (registers.level, registers.hcr) = (2, hcr));
        assert_eq!(TLB.init(config), Err(InitError::WrongRegime { level: 2 }));
    }
    set_registers(|registers| registers.level = 3);
    assert_eq!(TLB.init(config), Err(InitError::WrongRegime { level: 3 }));
    set_registers(|registers| (registers.level, registers.hcr) = (2, e2h | tge));
    assert_eq!(TLB.init(config), Ok(()));
    assert_eq!(TLB.online(), Ok(()));
    set_registers(|registers| registers.hcr = 0);
    crate::platform::become_cpu(1);
    assert_eq!(TLB.online(), Err(OnlineError::WrongRegime { level: 2 }));
}

#[test]
fn an_asid_in_ttbr1_is_written_there_while_the_reserved_root_is_loaded() {
    machine!(Kernel, 1, TLB: Broadcast<Kernel, LogArm>);
    set_registers(|registers| registers.tcr |= 1 << 22);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    take_log();
    let space = TLB.space(0xa000).unwrap();
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.switch(&space) };
    assert_eq!(
        take_log(),
        [
            "ttbr0 0x1000",
            "isb",
            "ttbr1 0x40001000",
            "isb",
            "dsb ish",
            "ttbr1 0x1000040001000",
            "isb",
            "ttbr0 0xa000",
            "isb",
        ]
    );
    // SAFETY: as above.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}

#[test]
fn a_shared_tlb_is_refused() {
    machine!(Kernel, 1, TLB: Broadcast<Kernel, LogArm>);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    set_registers(|registers| registers.ttbr1 |= 1);
    assert_eq!(TLB.online(), Err(OnlineError::SharedTlb { cpu: 0 }));
}

#[test]
fn too_few_asids_are_found_out_at_set_up() {
    machine!(Kernel, 63, TLB: Broadcast<Kernel, LogArm, 1, 1>);
    let error = TLB.init(Config::new(PAGING, 0x1000));
    assert_eq!(error, Err(InitError::TooFewAsids { asids: 64 }));
}

#[test]
fn more_spaces_than_asids() {
    machine!(Kernel, 1, TLB: Broadcast<Kernel, LogArm, 1, 1>);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    let spaces: Vec<_> = (0..200).map(|_| TLB.space(0xa000).unwrap()).collect();
    take_log();
    let mut flushes = 0;
    for (number, space) in spaces.iter().enumerate() {
        // SAFETY: nothing is translated on the host.
        unsafe { TLB.switch(space) };
        let log = take_log();
        let flushed = log.iter().any(|what| what.starts_with("tlbi Vmalle1 "));
        // 63 ASIDs, then a rollover; the space that ran before keeps its own.
        assert_eq!(
            flushed,
            number == 63 || number == 63 + 62 || number == 63 + 62 + 62,
            "{number}"
        );
        flushes += usize::from(flushed);
    }
    assert_eq!(flushes, 3);
    // SAFETY: as above.
    unsafe { TLB.unload() };
    for space in &spaces {
        TLB.retire(space).unwrap();
    }
}

#[test]
fn a_space_shared_with_a_device_keeps_its_asid() {
    machine!(Kernel, 1, TLB: Local<Kernel, LogArm, 1, 1>);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    let shared = TLB.space(0xa000).unwrap();
    TLB.share_with_device(&shared).unwrap();
    TLB.share_with_device(&shared).unwrap();
    let asid = shared.tag();
    let others: Vec<_> = (0..150).map(|_| TLB.space(0xb000).unwrap()).collect();
    for space in &others {
        // SAFETY: nothing is translated on the host.
        unsafe { TLB.switch(space) };
        assert_ne!(space.tag(), asid);
    }
    // SAFETY: as above.
    unsafe { TLB.switch(&shared) };
    assert_eq!(shared.tag(), asid);
    take_log();
    TLB.flush(&shared, pages(0x5000, 1)).wait();
    assert_eq!(
        take_log().last().unwrap(),
        "dsb ish",
        "devices listen to broadcasts only"
    );
    // As many pins as leave an ASID for the CPU and one to spare.
    let pinned = others
        .iter()
        .take_while(|space| TLB.share_with_device(space).is_ok());
    assert_eq!(pinned.count(), 60);
    // SAFETY: as above.
    unsafe { TLB.unload() };
    for space in others.iter().chain([&shared]) {
        TLB.retire(space).unwrap();
    }
}

#[test]
fn ranges_and_level_hints_where_the_cpu_has_them() {
    machine!(Kernel, 1, TLB: Broadcast<Kernel, LogArm>);
    set_registers(|registers| {
        registers.isar0 = 2 << 56;
        registers.mmfr2 = 1 << 48;
    });
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.switch(&space) };
    take_log();
    // 5 pages: 2 * 2 and one.
    TLB.flush(&space, pages(0x5000, 5)).wait();
    assert_eq!(
        take_log(),
        [
            "dsb ishst",
            "tlbi Rvale1Is 0x1408000000005",
            "tlbi Vale1Is 0x1000000000009",
            "dsb ish"
        ]
    );
    TLB.flush(&space, pages(0x5000, 1).uniform_level()).wait();
    assert_eq!(take_log()[1], "tlbi Vale1Is 0x1700000000005");
    // A freed table was an entry of another level.
    TLB.flush(&space, pages(0x5000, 1).uniform_level().tables_freed())
        .wait();
    assert_eq!(take_log()[1], "tlbi Vae1Is 0x1000000000005");
    let large = Range::new(PAGING, 0x20_0000, 2, Stride::Size2M).unwrap();
    TLB.flush(&space, Request::range(large).uniform_level())
        .wait();
    // 1024 pages: 16 units of 64.
    assert_eq!(take_log()[1], "tlbi Rvale1Is 0x157c000000200");
    TLB.flush(&space, pages(0, 1 << 21)).wait();
    assert_eq!(take_log()[1], "tlbi Rvale1Is 0x17f8000000000");
    TLB.flush(&space, pages(0, (1 << 21) + 1)).wait();
    assert_eq!(take_log()[1], "tlbi Aside1Is 0x1000000000000");
    // SAFETY: as above.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}

#[test]
fn a_part_that_must_repeat_repeats() {
    machine!(Kernel, 1, TLB: Broadcast<Kernel, LogArm>);
    set_registers(|registers| registers.midr = 0x413f_d0c1);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    take_log();
    TLB.flush_kernel(Request::all()).wait();
    let sync = ["dsb ish", "tlbi Vale1Is 0x0", "dsb ish", "isb"];
    assert_eq!(take_log()[2..], sync);
}

#[test]
fn a_space_that_only_this_cpu_runs_is_flushed_here() {
    machine!(Kernel, 2, TLB: Local<Kernel, LogArm>);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    become_cpu(1);
    TLB.online().unwrap();
    take_log();
    let (a, b) = (TLB.space(0xa000).unwrap(), TLB.space(0xb000).unwrap());
    // SAFETY: nothing is translated on the host.
    let (switch, unload) = unsafe { (|space| TLB.switch(space), || TLB.unload()) };
    let flush = |space, request| {
        TLB.flush(space, request).wait();
        take_log()
    };
    // First load on CPU 1: the reserved root, then counted, then what the ASID may have left is dropped.
    switch(&a);
    assert_eq!(
        take_log(),
        [
            "ttbr0 0x1000",
            "isb",
            "dsb ish",
            "tlbi Aside1 0x1000000000000",
            "dsb ish",
            "ttbr0 0x100000000a000",
            "isb"
        ]
    );
    let one = pages(0x5000, 1);
    assert_eq!(
        flush(&a, one),
        ["dsb ish", "tlbi Vale1 0x1000000000005", "dsb nsh"]
    );
    // Freed tables reach everybody.
    assert_eq!(
        flush(&a, one.tables_freed()),
        ["dsb ishst", "tlbi Vae1Is 0x1000000000005", "dsb ish"]
    );
    // Reclaim, from a CPU that runs something else.
    let everywhere = "tlbi Vale1Is 0x1000000000005".to_string();
    become_cpu(0);
    assert!(flush(&a, one).contains(&everywhere));
    // A second thread.
    switch(&a);
    take_log();
    assert!(flush(&a, one).contains(&everywhere));
    // It leaves: counted out behind a barrier.
    switch(&b);
    assert_eq!(take_log()[..3], ["ttbr0 0x1000", "isb", "dsb ish"]);
    become_cpu(1);
    // The other CPU's bit is cleared once, behind a barrier of its own.
    assert_eq!(flush(&a, one)[..2], ["dsb ish", "dsb ish"]);
    assert_eq!(
        flush(&a, one),
        ["dsb ish", "tlbi Vale1 0x1000000000005", "dsb nsh"]
    );
    // Nobody runs it: nothing.
    unload();
    take_log();
    assert!(!flush(&a, one).iter().any(|what| what.starts_with("tlbi")));
    // Both CPUs are stale now.
    for cpu in 0..2 {
        become_cpu(cpu);
        switch(&a);
        assert!(take_log().contains(&"tlbi Aside1 0x1000000000000".to_string()));
        unload();
        switch(&a);
        assert!(
            !take_log().contains(&"tlbi Aside1 0x1000000000000".to_string()),
            "clean"
        );
        unload();
    }
    let counters = TLB.counters();
    assert_eq!((counters.elided_unused, counters.local_tables), (1, 0));
    TLB.retire(&a).unwrap();
    TLB.retire(&b).unwrap();
}

#[test]
fn a_space_that_only_this_cpu_has_ever_loaded_is_flushed_here() {
    machine!(Kernel, 2, TLB: ActiveCpu<Kernel, LogArm>);
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    // SAFETY: nothing is translated on the host.
    let switch = || unsafe { TLB.switch(&space) };
    switch();
    take_log();
    let flush = |request| {
        TLB.flush(&space, request).wait();
        take_log()
    };
    let one = pages(0x5000, 1);
    assert_eq!(
        flush(one),
        ["dsb ish", "tlbi Vale1 0x1000000000005", "dsb nsh"]
    );
    assert_eq!(
        flush(one.tables_freed()),
        ["dsb ish", "tlbi Vae1 0x1000000000005", "dsb nsh"]
    );
    // SAFETY: as above.
    unsafe { TLB.unload() };
    take_log();
    assert_eq!(
        flush(one)[1],
        "tlbi Vale1 0x1000000000005",
        "its entries may still be here"
    );
    take_log();
    become_cpu(1);
    TLB.online().unwrap();
    take_log();
    assert_eq!(flush(one)[1], "tlbi Vale1Is 0x1000000000005");
    switch();
    take_log();
    assert_eq!(
        flush(one)[1],
        "tlbi Vale1Is 0x1000000000005",
        "several, for good"
    );
    // SAFETY: as above.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}
