//! What a hypervisor does for a flush, and what happens if it does not.

use core::hint::spin_loop;

use shootdown::{Request, Space, Stride, TlbFlusher};
use shootdown_workload::Barrier;
use spin::Mutex;
use x86_kernel::{
    contention,
    frames::LARGE_PAGE,
    host,
    hyperv_guest::{self, Calls},
    kvm_guest,
    paging::{Tables, USER_WINDOW},
    pv_lock, smp,
};

use crate::{
    Backend, Flush,
    backend::{HyperVPv, KvmPv},
    bring_up,
    observe::{Watch, hollow, observe, read},
    pages::{frame, large_frame, new_space, range},
};

const OLD: u64 = 0x0b0b;
const NEW: u64 = 0x0c0c;

/// A space with an old page in it.
fn old_page<B: Backend>(tlb: &B) -> (Mutex<Tables>, Space) {
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    (tables, space)
}

fn exchange(tables: &Mutex<Tables>) -> Option<x86_kernel::frames::Frame> {
    let old = tables.lock().user().unmap(USER_WINDOW);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(NEW))
        .expect("it was unmapped");
    old
}

fn page<B: Backend>(tlb: &B) -> Request {
    Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K))
}

/// CPUs that are stopped are not interrupted. The host drops what they have before they go on; if it does not
/// ([`Flush::Hollow`]), they go on with it, so nobody else has.
///
/// # Panics
/// When it is otherwise.
pub fn stopped_cpus_are_left_to_the_host(flush: Flush) {
    let tlb = bring_up::<KvmPv>();
    let (tables, space) = old_page(tlb);
    let old = Mutex::new(None);
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let others = smp::cpus() as u64 - 1;
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        host::stop(1..smp::cpus(), || {
            *old.lock() = exchange(&tables);
            for _ in 0..2 {
                if flush != Flush::Missing {
                    tlb.flush(&space, page(tlb)).wait();
                }
            }
            if flush == Flush::Done {
                assert_eq!(kvm_guest::outstanding() as u64, others);
            }
            // Until the others go on.
            host::skip_flushes(flush == Flush::Hollow);
        });
        host::skip_flushes(false);
    });
    observed.assert_one(0, |_| Some(if flush == Flush::Missing { OLD } else { NEW }));
    for cpu in 1..smp::cpus() {
        observed.assert_one(cpu, |_| Some(if flush == Flush::Done { NEW } else { OLD }));
    }
    if flush != Flush::Missing {
        let counters = tlb.counters();
        assert_eq!(
            (
                counters.ipis_sent,
                counters.elided_by_host,
                counters.host_requests
            ),
            (0, 2 * others, others),
            "each is marked once, and skipped twice"
        );
    }
    assert_eq!(kvm_guest::outstanding(), 0);
    tlb.retire(&space).expect("nobody uses the space");
}

/// CPUs that run are interrupted.
///
/// # Panics
/// When they are not.
pub fn running_cpus_are_interrupted() {
    let tlb = bring_up::<KvmPv>();
    let (tables, space) = old_page(tlb);
    let old = Mutex::new(None);
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        *old.lock() = exchange(&tables);
        tlb.flush(&space, page(tlb)).wait();
    });
    observed.assert_all(|_| Some(NEW));
    let counters = tlb.counters();
    assert_eq!(
        (counters.ipis_sent, counters.elided_by_host),
        (smp::cpus() as u64 - 1, 0)
    );
    tlb.retire(&space).expect("nobody uses the space");
}

/// Who waits halted for a lock is spared flushes, and clean when it has the lock.
///
/// # Panics
/// When it is otherwise.
pub fn contended_lock(flush: Flush) {
    let tlb = bring_up::<KvmPv>();
    pv_lock::init();
    hollow(flush == Flush::Hollow);
    let contention = contention::run(tlb);
    hollow(false);
    assert!(contention.halts > 0, "nobody waited");
    assert!(tlb.counters().elided_lazy > 0, "nobody was spared");
    assert_eq!(
        contention.stale > 0,
        flush == Flush::Hollow,
        "{contention:?}"
    );
}

/// Each of the four hypercalls is made where it should be, and does what it should.
///
/// # Panics
/// When it is otherwise.
pub fn each_hypercall_is_made() {
    let tlb = bring_up::<HyperVPv>();
    let (tables, space) = old_page(tlb);
    let far = smp::cpus() > 2;
    let (barrier, old) = (Barrier::new(smp::cpus()), Mutex::new([const { None }; 4]));
    // With two CPUs each processor has a place in the mask of 64, with more not.
    let steps = [
        (2, page(tlb)),
        (2, Request::all()),
        (smp::cpus(), page(tlb)),
        (smp::cpus(), Request::all()),
    ];
    smp::run_on_all(&|cpu| {
        for (step, (cpus, request)) in steps.iter().enumerate() {
            if cpu < *cpus {
                // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
                unsafe { tlb.switch(&space) };
                assert!(read(USER_WINDOW).is_ok());
            }
            barrier.wait(spin_loop);
            if cpu == 0 {
                let gone = tables.lock().user().unmap(USER_WINDOW);
                tables
                    .lock()
                    .user()
                    .map(USER_WINDOW, frame(step as u64))
                    .expect("it was unmapped");
                old.lock()[step] = gone;
                tlb.flush(&space, *request).wait();
            }
            barrier.wait(spin_loop);
            if cpu < *cpus {
                assert_eq!(read(USER_WINDOW), Ok(step as u64), "CPU {cpu}");
            }
            // SAFETY: the kernel's tables map the kernel.
            unsafe { tlb.unload() };
            barrier.wait(spin_loop);
        }
    });
    let [near, wide] = if far { [1, 1] } else { [2, 0] };
    let expected = Calls {
        space: near,
        list: near,
        space_ex: wide,
        list_ex: wide,
        failed: 0,
    };
    assert_eq!(hyperv_guest::calls(), expected);
    assert_eq!(tlb.counters().ipis_sent, 0);
    tlb.retire(&space).expect("nobody uses the space");
}

/// A list that the host leaves unfinished is gone on with.
///
/// # Panics
/// When its last entry is not dropped.
pub fn long_list(flush: Flush) {
    /// More entries than the host does at once.
    const PAGES: u64 = 6;
    let tlb = bring_up::<HyperVPv>();
    let (tables, space) = new_space(tlb);
    let last = USER_WINDOW + (PAGES - 1) * LARGE_PAGE;
    tables
        .lock()
        .user()
        .map(last, large_frame(OLD))
        .expect("nothing is mapped");
    let other = Mutex::new(Some(large_frame(NEW)));
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, &[last], &|| {
        let old = tables.lock().user().unmap(last);
        let new = core::mem::replace(&mut *other.lock(), old).expect("it was made before");
        tables
            .lock()
            .user()
            .map(last, new)
            .expect("it was unmapped");
        flush.run(|| {
            let pages = range(tlb, USER_WINDOW, PAGES, Stride::Size2M);
            tlb.flush(&space, Request::range(pages)).wait();
        });
    });
    observed.assert_all(|_| Some(if flush == Flush::Done { NEW } else { OLD }));
    if flush == Flush::Done {
        let calls = hyperv_guest::calls();
        assert_eq!((calls.list + calls.list_ex, calls.failed), (2, 0));
    }
    tlb.retire(&space).expect("nobody uses the space");
}

/// Whoever the host refuses to flush is interrupted.
///
/// # Panics
/// When it is not.
pub fn refused_hypercalls_are_interrupts() {
    let tlb = bring_up::<HyperVPv>();
    host::refuse_every(1);
    let (tables, space) = old_page(tlb);
    let old = Mutex::new(None);
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        *old.lock() = exchange(&tables);
        tlb.flush(&space, page(tlb)).wait();
    });
    observed.assert_all(|_| Some(NEW));
    let counters = tlb.counters();
    assert_eq!(
        (
            counters.ipis_sent,
            counters.elided_by_host,
            counters.host_refusals
        ),
        (smp::cpus() as u64 - 1, 0, 1)
    );
    assert_eq!(tlb.courier_ref().last_refusal(), Some(11));
    tlb.retire(&space).expect("nobody uses the space");
}

/// The host drops what the operands name and nothing else: a flush aimed at others is seen as stale.
///
/// # Panics
/// When it is not.
pub fn wrong_processor_is_stale() {
    let tlb = bring_up::<HyperVPv>();
    let (tables, space) = old_page(tlb);
    let old = Mutex::new(None);
    let (barrier, cpus) = (Barrier::new(smp::cpus()), smp::cpus());
    hyperv_guest::aim_at_wrong_vp(true);
    smp::run_on_all(&|cpu| {
        // CPU 1 alone is a target, and the one after it gets the flush.
        if cpu < 2 {
            // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
            unsafe { tlb.switch(&space) };
            assert_eq!(read(USER_WINDOW), Ok(OLD));
        }
        barrier.wait(spin_loop);
        if cpu == 0 {
            *old.lock() = exchange(&tables);
            tlb.flush(&space, page(tlb)).wait();
        }
        barrier.wait(spin_loop);
        if cpu < 2 {
            let expected = if cpu == 1 { OLD } else { NEW };
            assert_eq!(read(USER_WINDOW), Ok(expected), "CPU {cpu} of {cpus}");
        }
        // SAFETY: the kernel's tables map the kernel.
        unsafe { tlb.unload() };
    });
    tlb.retire(&space).expect("nobody uses the space");
}
