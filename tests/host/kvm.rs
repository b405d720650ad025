//! KVM's courier: whom it marks, whom it interrupts, and what the registers get.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use shootdown::{
    Batch, Paging, Range, Request, Space, Stride, TlbFlusher,
    x86_64::{
        Config, Features, Serial, Tlb,
        kvm::{
            Kvm, KvmFeatures, KvmMissing, KvmPlatform, StealTime, disable_steal_time,
            enable_steal_time,
        },
    },
};

use crate::{
    machine,
    platform::{LogMsrs, LogX86, on_cpu, panic_of, take_log},
};

const OFFERED: KvmFeatures = KvmFeatures {
    present: true,
    steal_time: true,
    flush_on_entry: true,
    realtime: false,
};

const PREEMPTED: u8 = 1;
const FLUSH_TLB: u8 = 2;

/// The byte `preempted`, where KVM has it.
fn byte(page: &'static StealTime) -> &'static AtomicU8 {
    let byte = core::ptr::from_ref(page).cast::<u8>().cast_mut();
    // SAFETY: the structure has 64 bytes, and the crate itself uses this one by atomic operations only.
    unsafe { AtomicU8::from_ptr(byte.add(16)) }
}

/// Defines the steal-time structures of four CPUs, and a flusher, on a machine on which one thread plays them all.
macro_rules! kvm {
    ($courier:ty, $tlb:ident, $pages:ident) => {
        static $pages: [StealTime; 4] = [const { StealTime::new() }; 4];
        struct Steal;
        // SAFETY: each CPU has its own.
        unsafe impl KvmPlatform for Steal {
            fn steal_time(cpu: usize) -> &'static StealTime {
                &$pages[cpu]
            }
        }
        machine!(Kernel, 4, $tlb: Tlb<Kernel, $courier, LogX86>, served);
    };
}

fn one_page() -> Request {
    Request::range(Range::new(Paging::X86_4_LEVEL, 0x5000, 1, Stride::Size4K).unwrap())
}

/// All four CPUs come online and run `space`.
fn run<F: TlbFlusher>(tlb: &F, space: &Space) {
    for cpu in 0..4 {
        on_cpu(cpu, || {
            // SAFETY: nothing is translated on the host.
            unsafe { tlb.switch(space) };
        });
    }
    take_log();
}

fn online<F: TlbFlusher>(tlb: &F) {
    for cpu in 0..4 {
        on_cpu(cpu, || tlb.online().unwrap());
    }
}

/// All CPUs leave the space, and it retires.
fn end<F: TlbFlusher>(tlb: &F, spaces: &[&Space]) {
    for cpu in 0..4 {
        // SAFETY: nothing is translated on the host.
        on_cpu(cpu, || unsafe { tlb.unload() });
    }
    for space in spaces {
        tlb.retire(space).unwrap();
    }
}

fn config() -> Config {
    Config::new(Features::default(), 0x1000)
}

#[test]
fn who_does_not_run_is_marked_and_the_others_are_interrupted() {
    kvm!(Kvm<Steal>, TLB, PAGES);
    TLB.init(config()).unwrap();
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    online(&TLB);
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);

    byte(&PAGES[2]).store(PREEMPTED, SeqCst);
    TLB.flush(&space, one_page()).wait();
    // The page by others, then by this CPU, which is concurrent. CPU 2 is not waited for.
    assert_eq!(
        take_log(),
        [
            "publish",
            "ipi [1, 3]",
            "invlpg 0x5000",
            "invlpg 0x5000",
            "invlpg 0x5000"
        ]
    );
    assert_eq!(byte(&PAGES[2]).load(SeqCst), PREEMPTED | FLUSH_TLB);
    assert_eq!(byte(&PAGES[1]).load(SeqCst), 0);
    let counters = TLB.counters();
    assert_eq!((counters.elided_by_host, counters.host_requests), (1, 1));
    assert_eq!((counters.ipis_sent, counters.host_refusals), (2, 0));
    assert_eq!((counters.remote, counters.ipis_elided()), (1, 1));

    // Marked already: nothing new is asked of the host.
    TLB.flush(&space, one_page()).wait();
    let counters = TLB.counters();
    assert_eq!((counters.elided_by_host, counters.host_requests), (2, 1));

    // It comes back, having been flushed, and serves again. Its generation had stayed behind, by more than the two
    // requests that the ring remembers: it drops everything.
    byte(&PAGES[2]).store(0, SeqCst);
    take_log();
    TLB.flush(&space, one_page()).wait();
    assert_eq!(
        take_log(),
        [
            "publish",
            "ipi [1, 2, 3]",
            "invlpg 0x5000",
            "cr3 0xa000",
            "invlpg 0x5000",
            "invlpg 0x5000"
        ]
    );
    // Only the flags that are known count.
    byte(&PAGES[2]).store(1 << 2, SeqCst);
    TLB.flush(&space, one_page()).wait();
    assert!(take_log().contains(&"ipi [1, 2, 3]".into()));
    end(&TLB, &[&space]);
}

#[test]
fn everybody_may_be_preempted() {
    kvm!(Kvm<Steal, Serial>, TLB, PAGES);
    TLB.init(config()).unwrap();
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    online(&TLB);
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    for page in &PAGES[1..] {
        byte(page).store(PREEMPTED, SeqCst);
    }
    TLB.flush(&space, one_page()).wait();
    assert_eq!(take_log(), ["invlpg 0x5000"]);
    byte(&PAGES[3]).store(0, SeqCst);
    TLB.flush(&space, one_page()).wait();
    // Serial: the own TLB goes first.
    assert_eq!(take_log()[..3], ["invlpg 0x5000", "publish", "ipi [3]"]);
    end(&TLB, &[&space]);
}

#[test]
fn freed_tables_are_left_to_the_host_unless_turned_off() {
    kvm!(Kvm<Steal>, TLB, PAGES);
    TLB.init(config()).unwrap();
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    online(&TLB);
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    // A lazy one that does not run is reached as well.
    let lazy = on_cpu(1, || TLB.lazy_enter());
    byte(&PAGES[1]).store(PREEMPTED, SeqCst);
    for request in [
        Request::all().tables_freed(),
        one_page().attributes_changed(),
    ] {
        TLB.flush(&space, request).wait();
        assert!(take_log().contains(&"ipi [2, 3]".into()));
        assert_eq!(
            byte(&PAGES[1]).swap(PREEMPTED, SeqCst),
            PREEMPTED | FLUSH_TLB
        );
    }
    // An ordinary flush needs neither.
    TLB.flush(&space, one_page()).wait();
    assert_eq!(byte(&PAGES[1]).load(SeqCst), PREEMPTED);
    take_log();

    TLB.courier_ref().elide_freed_tables(false);
    TLB.flush(&space, Request::all().tables_freed()).wait();
    assert!(take_log().contains(&"ipi [1, 2, 3]".into()));
    assert_eq!(byte(&PAGES[1]).load(SeqCst), PREEMPTED);
    // The lazy CPU was made to leave the space.
    on_cpu(1, || {
        // SAFETY: nothing is translated on the host.
        unsafe { TLB.lazy_leave(lazy, &space) };
    });
    // Others are elided as before.
    take_log();
    TLB.flush(&space, one_page()).wait();
    assert!(take_log().contains(&"ipi [2, 3]".into()));
    end(&TLB, &[&space]);
}

#[test]
fn kernel_flushes_reach_everybody_by_interrupt() {
    kvm!(Kvm<Steal>, TLB, PAGES);
    TLB.init(config()).unwrap();
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    online(&TLB);
    take_log();
    byte(&PAGES[1]).store(PREEMPTED, SeqCst);
    TLB.flush_kernel(Request::all()).wait();
    assert!(take_log().contains(&"ipi [1, 2, 3]".into()));
    assert_eq!(byte(&PAGES[1]).load(SeqCst), PREEMPTED);
}

#[test]
fn a_batch_is_one_errand() {
    kvm!(Kvm<Steal>, TLB, PAGES);
    TLB.init(config()).unwrap();
    TLB.courier_ref().enable(&OFFERED, 4).unwrap();
    online(&TLB);
    let (a, b) = (TLB.space(0xa000).unwrap(), TLB.space(0xb000).unwrap());
    for (cpu, space) in [(1, &a), (2, &b), (3, &b)] {
        // SAFETY: nothing is translated on the host.
        on_cpu(cpu, || unsafe { TLB.switch(space) });
    }
    byte(&PAGES[1]).store(PREEMPTED, SeqCst);
    byte(&PAGES[2]).store(PREEMPTED, SeqCst);
    take_log();
    let mut batch = Batch::<_, 1, 4>::new(&TLB);
    batch.add(&a, one_page());
    batch.add(&b, one_page());
    batch.flush();
    drop(batch);
    assert_eq!(take_log(), ["publish", "ipi [3]", "invlpg 0x5000"]);
    let counters = TLB.counters();
    assert_eq!((counters.elided_by_host, counters.host_requests), (2, 2));
    end(&TLB, &[&a, &b]);
}

#[test]
fn without_what_it_needs_it_interrupts() {
    kvm!(Kvm<Steal>, TLB, PAGES);
    TLB.init(config()).unwrap();
    let courier = TLB.courier_ref();
    let lacking = [
        (
            KvmFeatures {
                present: false,
                ..OFFERED
            },
            4,
            KvmMissing::NotKvm,
        ),
        (
            KvmFeatures {
                steal_time: false,
                ..OFFERED
            },
            4,
            KvmMissing::StealTime,
        ),
        (
            KvmFeatures {
                flush_on_entry: false,
                ..OFFERED
            },
            4,
            KvmMissing::FlushOnEntry,
        ),
        (
            KvmFeatures {
                realtime: true,
                ..OFFERED
            },
            4,
            KvmMissing::Realtime,
        ),
        (OFFERED, 1, KvmMissing::OneCpu),
    ];
    for (features, cpus, missing) in lacking {
        assert_eq!(courier.enable(&features, cpus), Err(missing));
        assert!(!courier.is_enabled() && !missing.to_string().is_empty());
    }
    online(&TLB);
    let space = TLB.space(0xa000).unwrap();
    run(&TLB, &space);
    byte(&PAGES[1]).store(PREEMPTED, SeqCst);
    TLB.flush(&space, one_page()).wait();
    assert!(take_log().contains(&"ipi [1, 2, 3]".into()));
    assert_eq!(byte(&PAGES[1]).load(SeqCst), PREEMPTED);
    courier.enable(&OFFERED, 4).unwrap();
    TLB.flush(&space, one_page()).wait();
    assert!(take_log().contains(&"ipi [2, 3]".into()));
    courier.disable();
    TLB.flush(&space, one_page()).wait();
    assert!(take_log().contains(&"ipi [1, 2, 3]".into()));
    assert_eq!(TLB.counters().elided_by_host, 1);
    end(&TLB, &[&space]);
}

#[test]
fn steal_time_is_given_to_the_host_and_taken_back() {
    static PAGE: StealTime = StealTime::new();
    byte(&PAGE).store(PREEMPTED | FLUSH_TLB, SeqCst);
    // SAFETY: nobody writes there.
    unsafe { enable_steal_time::<LogMsrs>(&PAGE, 0x1_2340) };
    // What another kernel left is gone before the host looks.
    assert_eq!(take_log(), ["wrmsr 0x4b564d03 0x12341"]);
    assert_eq!(byte(&PAGE).load(SeqCst), 0);
    assert!(!PAGE.is_preempted());
    byte(&PAGE).store(PREEMPTED, SeqCst);
    assert!(PAGE.is_preempted());
    // SAFETY: as above.
    unsafe { disable_steal_time::<LogMsrs>(&PAGE) };
    assert_eq!(take_log(), ["wrmsr 0x4b564d03 0x0"]);
    assert!(!PAGE.is_preempted());
    assert_eq!(PAGE.stolen_ns(), 0);

    let message = panic_of(|| {
        // SAFETY: as above.
        unsafe { enable_steal_time::<LogMsrs>(&PAGE, 0x1_2320) };
    });
    assert!(message.contains("must be aligned to 64 bytes"));
    assert_eq!(take_log(), [""; 0]);
}
