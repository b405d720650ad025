//! CPUs that keep a space loaded without using it, or that left it: spared the interrupt, and clean before they use
//! the space again.

use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use shootdown::{Request, Stride};
use shootdown_workload::Barrier;
use spin::Mutex;
use x86_kernel::{apic, paging::USER_WINDOW, smp, traps};

use crate::{
    Backend, Flush, bring_up,
    observe::{Watch, hollow, observe, read},
    pages::{frame, new_space, range},
};

const OLD: u64 = 0x0505;
const NEW: u64 = 0x0606;

fn exchange<B: Backend>(flush: Flush, request: fn(&B) -> Request) -> &'static B {
    let tlb = bring_up::<B>();
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    let old = Mutex::new(None);
    let watch = Watch {
        space: Some(&space),
        lazy: true,
        access: read,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        *old.lock() = tables.lock().user().unmap(USER_WINDOW);
        tables
            .lock()
            .user()
            .map(USER_WINDOW, frame(NEW))
            .expect("it was unmapped");
        flush.run(|| tlb.flush(&space, request(tlb)).wait());
        if flush == Flush::Hollow {
            // The instruction is left out until the others have left lazy mode.
            hollow(true);
        }
    });
    hollow(false);
    observed.assert_all(|_| Some(if flush == Flush::Done { NEW } else { OLD }));
    tlb.retire(&space).expect("nobody uses the space");
    tlb
}

/// How many CPUs a flush thinks about: none where it is broadcast.
fn others<B: Backend>() -> u64 {
    if B::BROADCASTS {
        0
    } else {
        smp::cpus() as u64 - 1
    }
}

/// A lazy CPU is not interrupted, and flushes when it leaves lazy mode.
pub fn skipped_then_clean<B: Backend>(flush: Flush) {
    let tlb = exchange::<B>(flush, |tlb| {
        Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K))
    });
    if flush == Flush::Done {
        let counters = tlb.counters();
        assert_eq!(
            (counters.ipis_sent, counters.elided_lazy),
            (0, others::<B>())
        );
    }
}

/// Where tables are freed, a lazy CPU is interrupted and leaves the space at once.
///
/// # Panics
/// When it is spared.
pub fn reached_when_tables_are_freed<B: Backend>() {
    let tlb = exchange::<B>(Flush::Done, |_| Request::all().tables_freed());
    let counters = tlb.counters();
    assert_eq!(
        (
            counters.ipis_sent + counters.elided_by_host,
            counters.elided_lazy
        ),
        (others::<B>(), 0)
    );
}

/// A CPU that has another space loaded is not interrupted.
///
/// # Panics
/// When it is, or reads something old when it comes back.
pub fn elsewhere_is_spared<B: Backend>() {
    let tlb = bring_up::<B>();
    let places = [new_space(tlb), new_space(tlb)];
    for (tables, _) in &places {
        tables
            .lock()
            .user()
            .map(USER_WINDOW, frame(OLD))
            .expect("nothing is mapped");
    }
    let ([here, there], barrier) = (&places, Barrier::new(smp::cpus()));
    smp::run_on_all(&|cpu| {
        // SAFETY: all tables map the kernel, and the spaces are retired before they are dropped.
        unsafe { tlb.switch(&here.1) };
        assert_eq!(read(USER_WINDOW), Ok(OLD));
        if cpu != 0 {
            // SAFETY: as above.
            unsafe { tlb.switch(&there.1) };
        }
        barrier.wait(spin_loop);
        if cpu == 0 {
            let _old = here.0.lock().user().unmap(USER_WINDOW);
            here.0
                .lock()
                .user()
                .map(USER_WINDOW, frame(NEW))
                .expect("it was unmapped");
            tlb.flush(
                &here.1,
                Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K)),
            )
            .wait();
        }
        barrier.wait(spin_loop);
        assert_eq!(read(USER_WINDOW), Ok(if cpu == 0 { NEW } else { OLD }));
        // SAFETY: as above.
        unsafe { tlb.switch(&here.1) };
        assert_eq!(read(USER_WINDOW), Ok(NEW));
        // SAFETY: the kernel's tables map the kernel.
        unsafe { tlb.unload() };
    });
    let counters = tlb.counters();
    assert_eq!(
        (counters.ipis_sent, counters.elided_away),
        (0, others::<B>())
    );
    for (_, space) in &places {
        tlb.retire(space).expect("nobody uses the space");
    }
}

/// An NMI handler may touch user memory while a space is in use, and not while the CPU is lazy or has none.
///
/// # Panics
/// When the flusher says otherwise.
pub fn nmi_asks_first<B: Backend>() {
    static NMIS: AtomicU64 = AtomicU64::new(0);
    static ALLOWED: AtomicU64 = AtomicU64::new(0);

    let tlb = bring_up::<B>();
    traps::set_handler(2, || {
        ALLOWED.store(u64::from(B::TLB.user_access_ok()), SeqCst);
        NMIS.fetch_add(1, SeqCst);
    });
    let allowed = || {
        let before = NMIS.load(SeqCst);
        apic::send_nmi(core::iter::once(0));
        while NMIS.load(SeqCst) == before {
            spin_loop();
        }
        ALLOWED.load(SeqCst) == 1
    };
    let (_tables, space) = new_space(tlb);
    assert!(!allowed(), "no space is loaded");
    // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
    unsafe { tlb.switch(&space) };
    assert!(allowed(), "a space is in use");
    let outer = tlb.lazy_enter();
    assert!(!allowed(), "the CPU is lazy");
    // SAFETY: as above; the space was in use before.
    unsafe { tlb.lazy_leave(outer, &space) };
    assert!(allowed(), "the space is in use again");
    // SAFETY: the kernel's tables map the kernel.
    unsafe { tlb.unload() };
    assert!(!allowed(), "no space is loaded any more");
    tlb.retire(&space).expect("nobody uses the space");
}
