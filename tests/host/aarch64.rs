//! Which instructions the arm64 backend executes, in which order.

use shootdown::{
    Batch, Granule, OnlineError, Paging, Range, Request, SpaceError, Stride, TlbFlusher,
    aarch64::{Broadcast, Config, InitError, MAX_TLBI_OPERATIONS},
};

use crate::{
    machine,
    platform::{LogArm, set_registers, take_log},
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
    assert_eq!(space.tag(), 1);
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.switch(&space) };
    assert_eq!(take_log(), ["ttbr0 0x100000000a000", "isb"]);
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
    for whole in [Request::all(), pages(0x5000, MAX_TLBI_OPERATIONS + 1)] {
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
    assert_eq!(
        take_log(),
        ["ttbr0 0x1000", "isb", "ttbr0 0x100000000a000", "isb"]
    );
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
fn an_asid_in_ttbr1_is_refused() {
    machine!(Kernel, 1, TLB: Broadcast<Kernel, LogArm>);
    set_registers(|registers| registers.tcr |= 1 << 22);
    assert_eq!(
        TLB.init(Config::new(PAGING, 0x1000)),
        Err(InitError::AsidInTtbr1)
    );
}

#[test]
fn asids_run_out_and_come_back() {
    machine!(Kernel, 1, TLB: Broadcast<Kernel, LogArm, 1, 4>);
    // 16 bits in the CPU, but not switched on: 8.
    set_registers(|registers| registers.tcr &= !(1 << 36));
    TLB.init(Config::new(PAGING, 0x1000)).unwrap();
    TLB.online().unwrap();
    let mut spaces: Vec<_> = (0..255).map(|_| TLB.space(0xa000).unwrap()).collect();
    let none = TLB.space(0xa000).unwrap_err();
    assert_eq!(none, SpaceError::TagsExhausted { limit: 255 });
    let last = spaces.pop().unwrap();
    TLB.retire(&last).unwrap();
    assert_eq!(TLB.space(0xb000).unwrap().tag(), last.tag());
}
