//! Hyper-V's courier against a host that does what the TLFS says and rejects what it rejects.

mod host;

use shootdown::{
    Batch, Paging, Range, Request, Space, Stride, TlbFlusher,
    x86_64::{
        Config, Features, Serial, Tlb,
        hyperv::{
            HyperV, HyperVFeatures, HyperVMissing, HyperVPlatform, InputPage, disable_hypercalls,
            enable_hypercalls, open_source_guest, vp_index,
        },
    },
};

use crate::{
    machine,
    platform::{LogMsrs, LogX86, on_cpu, panic_of, set_msr, take_log},
};
use host::{Host, configure};

const OFFERED: HyperVFeatures = HyperVFeatures {
    present: true,
    hypercalls: true,
    vp_index: true,
    remote_flush: true,
    processor_sets: true,
};

/// Defines a flusher on a machine with four CPUs, whose VP indices are those given.
macro_rules! hyperv {
    ($tlb:ident, $vps:expr) => {
        hyperv!($tlb, $vps, HyperV<Guest>);
    };
    ($tlb:ident, $vps:expr, $courier:ty) => {
        struct Guest;
        // SAFETY: the host below has the same pages at the same addresses.
        unsafe impl HyperVPlatform for Guest {
            type Call = Host;
            fn vp_index(cpu: usize) -> Option<u32> {
                let vps: [Option<u32>; 4] = $vps;
                vps[cpu]
            }
            fn input(cpu: usize) -> Option<(&'static InputPage, u64)> {
                host::input(cpu)
            }
        }
        machine!(Kernel, 4, $tlb: Tlb<Kernel, $courier, LogX86>, served);
        let config = Config::new(Features::default(), 0x1000).ceiling(512);
        $tlb.init(config).unwrap();
        for cpu in 0..4 {
            on_cpu(cpu, || $tlb.online().unwrap());
        }
        let vps: [Option<u32>; 4] = $vps;
        configure(|host| host.vps = vps.into_iter().flatten().collect());
    };
}

const LOW: [Option<u32>; 4] = [Some(3), Some(2), Some(1), Some(0)];

fn pages(addr: u64, pages: u64) -> Request {
    Request::range(Range::new(Paging::X86_4_LEVEL, addr, pages, Stride::Size4K).unwrap())
}

fn large(pages: u64) -> Request {
    Request::range(Range::new(Paging::X86_4_LEVEL, 1 << 30, pages, Stride::Size2M).unwrap())
}

/// CPUs 1 to 3 run the space.
fn run<F: TlbFlusher>(tlb: &F, space: &Space) {
    for cpu in 1..4 {
        // SAFETY: nothing is translated on the host.
        on_cpu(cpu, || unsafe { tlb.switch(space) });
    }
    take_log();
}

fn end<F: TlbFlusher>(tlb: &F, space: &Space) {
    for cpu in 0..4 {
        // SAFETY: nothing is translated on the host.
        on_cpu(cpu, || unsafe { tlb.unload() });
    }
    tlb.retire(space).unwrap();
}

#[test]
fn calls_by_mask() {
    hyperv!(TLB, LOW);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    // VP indices, not CPU numbers.
    TLB.flush(&space, pages(0x5000, 1)).wait();
    assert_eq!(take_log(), ["list 0xa000 on [0, 1, 2]: 0x5000 + 0"]);
    TLB.flush(&space, pages(0x5000, 512)).wait();
    assert_eq!(take_log(), ["list 0xa000 on [0, 1, 2]: 0x5000 + 511"]);
    // Above the ceiling: everything.
    TLB.flush(&space, pages(0x5000, 513)).wait();
    TLB.flush(&space, Request::all()).wait();
    let all = "space 0xa000 on [0, 1, 2], globals may stay";
    assert_eq!(take_log(), [all, all]);
    // A large page is dropped by any of its addresses.
    TLB.flush(&space, large(2)).wait();
    assert_eq!(
        take_log(),
        ["list 0xa000 on [0, 1, 2]: 0x40000000 + 0, 0x40200000 + 0"]
    );
    // What is said of a list is said of translations, not of tables.
    TLB.flush(&space, pages(0x5000, 1).tables_freed()).wait();
    assert_eq!(take_log(), [all]);
    TLB.flush(&space, pages(0x5000, 1).attributes_changed())
        .wait();
    assert_eq!(take_log(), ["list 0xa000 on [0, 1, 2]: 0x5000 + 0"]);

    let counters = TLB.counters();
    assert_eq!((counters.host_requests, counters.elided_by_host), (7, 21));
    assert_eq!((counters.ipis_sent, counters.host_refusals), (0, 0));
    assert_eq!(
        (counters.remote, TLB.courier_ref().last_refusal()),
        (7, None)
    );
    end(&TLB, &space);
}

#[test]
fn the_kernel_and_batches_are_all_address_spaces() {
    hyperv!(TLB, LOW);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    take_log();
    let addr = 0xffff_8000_0000_0000;
    TLB.flush_kernel(pages(addr, 2)).wait();
    TLB.flush_kernel(Request::all()).wait();
    TLB.flush_kernel(pages(addr, 1).tables_freed()).wait();
    let log = take_log();
    let calls: Vec<_> = log.iter().filter(|what| what.contains(" on ")).collect();
    assert_eq!(
        calls,
        [
            "list * on [0, 1, 2]: 0xffff800000000000 + 1",
            "space * on [0, 1, 2]",
            "space * on [0, 1, 2]",
        ]
    );
    let (a, b) = (TLB.space(0xa000).unwrap(), TLB.space(0xb000).unwrap());
    // SAFETY: nothing is translated on the host.
    let on = |cpu, space: &Space| on_cpu(cpu, || unsafe { TLB.switch(space) });
    on(1, &a);
    on(2, &b);
    take_log();
    let mut batch = Batch::<_, 1, 4>::new(&TLB);
    batch.add(&a, pages(0x5000, 1));
    batch.add(&b, pages(0x7000, 1));
    batch.flush();
    assert_eq!(take_log(), ["space * on [1, 2], globals may stay"]);
    drop(batch);
    end(&TLB, &a);
    TLB.retire(&b).unwrap();
}

#[test]
fn kernel_ranges_of_all_pcids_are_left_out_of_lists() {
    // As for INVLPG: see `Config::kernel_mappings_global`.
    struct Guest;
    // SAFETY: as in the macro.
    unsafe impl HyperVPlatform for Guest {
        type Call = Host;
        fn vp_index(cpu: usize) -> Option<u32> {
            LOW[cpu]
        }
        fn input(cpu: usize) -> Option<(&'static InputPage, u64)> {
            host::input(cpu)
        }
    }
    machine!(Kernel, 4, TLB: Tlb<Kernel, HyperV<Guest>, LogX86>, served);
    let features = Features {
        pcid: true,
        invpcid: true,
        ..Features::default()
    };
    TLB.init(Config::new(features, 0x1000)).unwrap();
    on_cpu(0, || TLB.online().unwrap());
    on_cpu(1, || TLB.online().unwrap());
    configure(|host| host.vps = vec![0, 1, 2, 3]);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    take_log();
    TLB.flush_kernel(pages(0xffff_8000_0000_0000, 1)).wait();
    assert_eq!(take_log()[0], "space * on [2]");
}

#[test]
fn processors_above_63_are_named_by_a_set() {
    hyperv!(TLB, [Some(0), Some(4095), Some(64), Some(130)]);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    TLB.flush(&space, pages(0x5000, 3)).wait();
    assert_eq!(
        take_log(),
        ["list ex 0xa000 on [64, 130, 4095]: 0x5000 + 2"]
    );
    TLB.flush(&space, Request::all()).wait();
    assert_eq!(
        take_log(),
        ["space ex 0xa000 on [64, 130, 4095], globals may stay"]
    );
    assert_eq!(TLB.counters().ipis_sent, 0);
    end(&TLB, &space);
}

#[test]
fn who_can_not_be_named_is_interrupted() {
    hyperv!(TLB, [Some(0), Some(64), None, Some(5)]);
    let courier = TLB.courier_ref();
    let no_sets = HyperVFeatures {
        processor_sets: false,
        ..OFFERED
    };
    courier.enable(&no_sets, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    TLB.flush(&space, pages(0x5000, 1)).wait();
    assert_eq!(
        take_log()[..3],
        ["list 0xa000 on [5]: 0x5000 + 0", "publish", "ipi [1, 2]"]
    );
    courier.enable(&OFFERED, 4).unwrap();
    TLB.flush(&space, pages(0x5000, 1)).wait();
    assert_eq!(
        take_log()[..3],
        [
            "list ex 0xa000 on [5, 64]: 0x5000 + 0",
            "publish",
            "ipi [2]"
        ]
    );
    // Only CPU 2: nobody to call for.
    for cpu in [1, 3] {
        // SAFETY: nothing is translated on the host.
        on_cpu(cpu, || unsafe { TLB.unload() });
    }
    take_log();
    TLB.flush(&space, pages(0x5000, 1)).wait();
    assert_eq!(take_log()[..2], ["publish", "ipi [2]"]);
    let counters = TLB.counters();
    assert_eq!((counters.elided_by_host, counters.host_requests), (3, 2));
    end(&TLB, &space);
}

#[test]
fn an_index_that_no_set_can_hold() {
    hyperv!(TLB, [Some(0), Some(4096), Some(1), Some(u32::MAX)]);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    TLB.flush(&space, Request::all()).wait();
    assert_eq!(
        take_log()[..3],
        [
            "space 0xa000 on [1], globals may stay",
            "publish",
            "ipi [1, 3]"
        ]
    );
    end(&TLB, &space);
}

#[test]
fn a_list_fills_the_page_and_no_more() {
    hyperv!(TLB, LOW);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    // Three words before the list.
    for (count, call) in [(508, "list"), (509, "list"), (510, "space"), (511, "space")] {
        TLB.flush(&space, large(count)).wait();
        let log = take_log();
        assert_eq!(log.len(), 1, "{count}");
        assert_eq!(log[0].split(' ').next(), Some(call), "{count}");
        let entries = log[0].matches(" + ").count() as u64;
        assert_eq!(entries, if call == "list" { count } else { 0 });
    }
    assert_eq!(TLB.counters().host_refusals, 0);
    end(&TLB, &space);
}

#[test]
fn a_set_takes_room_from_the_list() {
    hyperv!(TLB, [Some(0), Some(1), Some(64), Some(128)]);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    // Four words and three banks before the list.
    for (count, call) in [(505, "list ex"), (506, "space ex")] {
        TLB.flush(&space, large(count)).wait();
        assert!(take_log()[0].starts_with(call), "{count}");
    }
    assert_eq!(TLB.counters().host_refusals, 0);
    end(&TLB, &space);
}

#[test]
fn a_list_is_resumed_where_the_host_left_it() {
    hyperv!(TLB, LOW);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    configure(|host| host.entries_a_call = 2);
    TLB.flush(&space, large(5)).wait();
    assert_eq!(
        take_log(),
        [
            "list 0xa000 on [0, 1, 2]: 0x40000000 + 0, 0x40200000 + 0",
            "list 0xa000 on [0, 1, 2]: 0x40400000 + 0, 0x40600000 + 0",
            "list 0xa000 on [0, 1, 2]: 0x40800000 + 0",
        ]
    );
    let counters = TLB.counters();
    assert_eq!((counters.host_requests, counters.elided_by_host), (1, 3));
    // A host that says success and does nothing would be asked for ever.
    configure(|host| host.entries_a_call = 0);
    TLB.flush(&space, large(5)).wait();
    assert!(take_log().contains(&"ipi [1, 2, 3]".into()));
    assert_eq!(TLB.counters().host_refusals, 1);
    assert_eq!(TLB.courier_ref().last_refusal(), Some(0x78));
    end(&TLB, &space);
}

#[test]
fn a_refusal_is_counted_reported_and_made_good_by_interrupts() {
    hyperv!(TLB, LOW, HyperV<Guest, Serial>);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    // HV_STATUS_INSUFFICIENT_MEMORY.
    configure(|host| host.refuse = Some(0xb));
    TLB.flush(&space, pages(0x5000, 1)).wait();
    // All of them flush, not this CPU alone.
    assert_eq!(
        take_log(),
        [
            "refused 0xb",
            "publish",
            "ipi [1, 2, 3]",
            "invlpg 0x5000",
            "invlpg 0x5000",
            "invlpg 0x5000"
        ]
    );
    let counters = TLB.counters();
    assert_eq!((counters.host_requests, counters.host_refusals), (1, 1));
    assert_eq!((counters.ipis_sent, counters.elided_by_host), (3, 0));
    assert_eq!(TLB.courier_ref().last_refusal(), Some(0xb));
    // The middle of a list, as well.
    configure(|host| (host.refuse, host.entries_a_call) = (None, 1));
    configure(|host| host.refuse_after = Some(1));
    TLB.flush(&space, large(3)).wait();
    assert!(take_log().contains(&"ipi [1, 2, 3]".into()));
    assert_eq!(TLB.counters().host_refusals, 2);
    end(&TLB, &space);
}

#[test]
fn without_an_input_page_it_interrupts() {
    hyperv!(TLB, LOW);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    configure(|host| host.no_page = true);
    TLB.flush(&space, pages(0x5000, 1)).wait();
    assert_eq!(take_log()[..2], ["publish", "ipi [1, 2, 3]"]);
    assert_eq!(TLB.counters().host_requests, 0);
    end(&TLB, &space);
}

/// A processor that was flushed by the host has not served: its next flush includes what it may lack.
#[test]
fn generations_stay_behind() {
    hyperv!(TLB, LOW);
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    for page in 0..3 {
        TLB.flush(&space, pages(0x1000 * page, 1)).wait();
    }
    take_log();
    TLB.courier_ref().disable();
    TLB.flush(&space, pages(0x9000, 1)).wait();
    let all = "cr3 0xa000";
    assert_eq!(take_log(), ["publish", "ipi [1, 2, 3]", all, all, all]);
    end(&TLB, &space);
}

#[test]
fn without_what_it_needs_it_interrupts() {
    hyperv!(TLB, LOW);
    let courier = TLB.courier_ref();
    let no = HyperVFeatures::default();
    let lacking = [
        (no, 4, HyperVMissing::NotHyperV),
        (
            HyperVFeatures {
                hypercalls: false,
                ..OFFERED
            },
            4,
            HyperVMissing::Hypercalls,
        ),
        (
            HyperVFeatures {
                vp_index: false,
                ..OFFERED
            },
            4,
            HyperVMissing::VpIndex,
        ),
        (
            HyperVFeatures {
                remote_flush: false,
                ..OFFERED
            },
            4,
            HyperVMissing::NotAdvised,
        ),
        (OFFERED, 1, HyperVMissing::OneCpu),
    ];
    for (features, cpus, missing) in lacking {
        assert_eq!(courier.enable(&features, cpus), Err(missing));
        assert!(!courier.is_enabled() && !missing.to_string().is_empty());
    }
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    TLB.flush(&space, pages(0x5000, 1)).wait();
    assert_eq!(take_log()[..2], ["publish", "ipi [1, 2, 3]"]);
    end(&TLB, &space);
}

#[test]
fn the_hypercall_page_is_set_up_after_the_guest_id() {
    let guest = open_source_guest(1, 0x0006_0100, 0);
    // Bits that the host keeps to itself.
    set_msr(0x4000_0001, 0x0ff0);
    // SAFETY: the registers do nothing.
    let enabled = unsafe { enable_hypercalls::<LogMsrs>(guest, 0x7000) };
    assert_eq!(enabled, Ok(()));
    assert_eq!(
        take_log(),
        [
            "wrmsr 0x40000000 0x8100000601000000",
            "wrmsr 0x40000001 0x7ff1"
        ]
    );
    set_msr(0x4000_0002, 9);
    // SAFETY: as above.
    assert_eq!(unsafe { vp_index::<LogMsrs>() }, 9);
    // SAFETY: as above.
    unsafe { disable_hypercalls::<LogMsrs>() };
    assert_eq!(
        take_log(),
        ["wrmsr 0x40000001 0xff0", "wrmsr 0x40000000 0x0"]
    );
    // Locked until the next reset: it is where it is.
    set_msr(0x4000_0001, 0x8003);
    // SAFETY: as above.
    let enabled = unsafe { enable_hypercalls::<LogMsrs>(guest, 0x7000) };
    assert_eq!(enabled, Err(0x8000));
    // SAFETY: as above.
    let zero = panic_of(|| unsafe {
        let _ = enable_hypercalls::<LogMsrs>(0, 0x7000);
    });
    assert!(zero.contains("guest OS id of 0"));
    // SAFETY: as above.
    let odd = panic_of(|| unsafe {
        let _ = enable_hypercalls::<LogMsrs>(guest, 0x7008);
    });
    assert!(odd.contains("0x7008 is not the address of a page"));
}

#[test]
fn the_host_of_these_tests_rejects_what_is_malformed() {
    use shootdown::x86_64::hyperv::Hypercall;
    configure(|host| host.vps = vec![0, 1, 2]);
    let call = |control: u64, words: &[u64]| {
        host::write(0, words);
        // SAFETY: it is a fake.
        (unsafe { Host::call(control, host::ADDRESS) }) as u16
    };
    let (one, list) = (1_u64 << 32, 1_u64 << 32 | 3);
    assert_eq!(call(2, &[0xa000, 0, 1]), 0);
    assert_eq!(call(list, &[0xa000, 0, 1, 0x5000]), 0);
    // A rep count for a simple call, none for a list, a start beyond the list.
    assert_eq!(call(one | 2, &[0xa000, 0, 1]), host::INVALID_INPUT);
    assert_eq!(call(3, &[0xa000, 0, 1]), host::INVALID_INPUT);
    assert_eq!(call(1 << 48 | list, &[0xa000, 0, 1]), host::INVALID_INPUT);
    // A variable header without a set; a set of another size than said.
    assert_eq!(call(1 << 17 | 2, &[0xa000, 0, 1]), host::INVALID_INPUT);
    assert_eq!(call(0x13, &[0xa000, 0, 0, 1, 1]), host::INVALID_INPUT);
    assert_eq!(call(1 << 17 | 0x13, &[0xa000, 0, 0, 1, 1]), 0);
    // Unknown calls, flags, bits; globals excepted from a list.
    assert_eq!(call(4, &[0xa000, 0, 1]), host::INVALID_CODE);
    assert_eq!(call(2, &[0xa000, 1 << 4, 1]), host::INVALID_PARAMETER);
    assert_eq!(call(1 << 27 | 2, &[0xa000, 0, 1]), host::INVALID_INPUT);
    assert_eq!(call(list, &[0xa000, 4, 1, 0x5000]), host::INVALID_PARAMETER);
    // PCID bits; a processor that is not there; a list over the page's end.
    assert_eq!(call(2, &[0xa001, 0, 1]), host::INVALID_PARAMETER);
    assert_eq!(call(2, &[0xa000, 0, 8]), host::INVALID_VP_INDEX);
    assert_eq!(
        call(510 << 32 | 3, &[0xa000, 0, 1]),
        host::INVALID_ALIGNMENT
    );
}
