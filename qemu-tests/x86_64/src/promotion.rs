//! Global PCIDs: who gets one, when, and what a flush costs before and after.

use core::hint::spin_loop;

use shootdown::{
    Request, Space, Stride, TlbFlusher,
    x86_64::{Auto, CourierKind, GlobalError, InitError, detect},
};
use shootdown_workload::Barrier;
use spin::Mutex;
use x86_kernel::{
    demo::{config, config_of},
    invlpgb::{self, BroadcastCpu, LeaveOut},
    paging::{Tables, USER_WINDOW},
    platform::Kernel,
    smp,
};

use crate::{
    Flush,
    backend::{Backend, Global, Policy},
    bring_up,
    observe::{Watch, observe, read},
    pages::{frame, new_space, range},
};

const OLD: u64 = 0x0d0d;
const NEW: u64 = 0x0e0e;

/// What a number of flushes cost.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    ipis: bool,
    broadcasts: bool,
}

const BY_INTERRUPT: Cost = Cost {
    ipis: true,
    broadcasts: false,
};
const BY_BROADCAST: Cost = Cost {
    ipis: false,
    broadcasts: true,
};

/// Has CPUs `0..cpus` run `space`, while CPU 0 exchanges a page and all look at it, a few times. Returns what the
/// last time cost.
///
/// # Panics
/// When a CPU sees an old page.
fn exchange(tlb: &Policy, tables: &Mutex<Tables>, space: &Space, cpus: usize) -> Cost {
    const TIMES: u64 = 4;
    let barrier = Barrier::new(smp::cpus());
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(0))
        .expect("nothing is mapped");
    let cost = Mutex::new(BY_INTERRUPT);
    smp::run_on_all(&|cpu| {
        let runs = cpu < cpus;
        if runs {
            // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
            unsafe { tlb.switch(space) };
        }
        for time in 0..TIMES {
            if runs {
                assert_eq!(read(USER_WINDOW), Ok(time));
            }
            barrier.wait(spin_loop);
            if cpu == 0 {
                let before = tlb.counters();
                let old = tables.lock().user().unmap(USER_WINDOW);
                tables
                    .lock()
                    .user()
                    .map(USER_WINDOW, frame(time + 1))
                    .expect("it was unmapped");
                let request = Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K));
                tlb.flush(space, request).wait();
                drop(old);
                let after = tlb.counters();
                *cost.lock() = Cost {
                    ipis: after.ipis_sent > before.ipis_sent,
                    broadcasts: after.broadcasts > before.broadcasts,
                };
            }
            barrier.wait(spin_loop);
        }
        if runs {
            assert_eq!(read(USER_WINDOW), Ok(TIMES));
        }
        barrier.wait(spin_loop);
        // SAFETY: the kernel's tables map the kernel.
        unsafe { tlb.unload() };
    });
    drop(tables.lock().user().unmap(USER_WINDOW));
    if cpus > 0 {
        tlb.flush(space, Request::all()).wait();
    }
    cost.into_inner()
}

/// A space that all CPUs run gets a PCID by its first flush, keeps it, and sends no interrupts any more.
///
/// # Panics
/// When it does not.
pub fn all_cpus_are_many() {
    let tlb = bring_up::<Policy>();
    let (tables, space) = new_space(tlb);
    assert_eq!(space.tag(), 0);
    assert_eq!(exchange(tlb, &tables, &space, smp::cpus()), BY_BROADCAST);
    let tag = space.tag();
    assert_ne!(tag, 0);
    assert_eq!(exchange(tlb, &tables, &space, 1), BY_BROADCAST);
    assert_eq!(space.tag(), tag);
    tlb.retire(&space).expect("nobody uses the space");
}

/// One CPU less is not enough: as before, and no PCID is used up.
///
/// # Panics
/// When it is.
pub fn one_less_is_not() {
    let tlb = bring_up::<Policy>();
    let (tables, space) = new_space(tlb);
    let few = smp::cpus() - 1;
    let cost = exchange(tlb, &tables, &space, few);
    // One CPU has nobody to interrupt.
    assert_eq!((cost.ipis, cost.broadcasts), (few > 1, false));
    assert_eq!((space.tag(), tlb.pcid_use().unwrap().in_use), (0, 0));
    tlb.retire(&space).expect("nobody uses the space");
}

/// A space that is kept local stays so.
///
/// # Panics
/// When it does not.
pub fn kept_local() {
    let tlb = bring_up::<Policy>();
    let (tables, space) = new_space(tlb);
    assert_eq!(tlb.keep_local(&space), Ok(()));
    assert_eq!(exchange(tlb, &tables, &space, smp::cpus()), BY_INTERRUPT);
    assert_eq!(space.tag(), 0);
    assert_eq!(tlb.make_global(&space), Err(GlobalError::KeptLocal));
    tlb.retire(&space).expect("nobody uses the space");
}

/// Where none is left a space stays local; those that come back are flushed before others get them.
///
/// # Panics
/// When it is otherwise.
pub fn exhaustion_and_reset() {
    let tlb = bring_up::<Policy>();
    let spaces: [_; 3] = core::array::from_fn(|_| new_space(tlb));
    let pinned = |index: usize| tlb.make_global(&spaces[index].1);
    assert_eq!((pinned(0), pinned(1)), (Ok(()), Ok(())));
    assert_ne!(spaces[0].1.tag(), spaces[1].1.tag());
    let (tables, last) = &spaces[2];
    assert_eq!(pinned(2), Err(GlobalError::Exhausted));
    assert_eq!(exchange(tlb, tables, last, smp::cpus()), BY_INTERRUPT);
    assert_eq!(last.tag(), 0);
    assert_eq!(invlpgb::executed().resets, 0);
    tlb.retire(&spaces[0].1).expect("nobody uses the space");
    assert_eq!(pinned(2), Ok(()));
    assert_eq!(invlpgb::executed().resets, 1);
    assert_eq!(tlb.pcid_use().unwrap().resets, 1);
    assert_ne!(last.tag(), spaces[1].1.tag());
    assert_eq!(exchange(tlb, tables, last, smp::cpus()), BY_BROADCAST);
    for (_, space) in &spaces[1..] {
        tlb.retire(space).expect("nobody uses the space");
    }
    assert_eq!(tlb.pcid_use().unwrap().in_use, 0);
}

/// A flush without TLBSYNC, or without INVLPGB: all CPUs, its own included, still see the old page.
///
/// # Panics
/// When one does not.
pub fn one_instruction_left_out(instruction: LeaveOut) {
    let tlb = bring_up::<Global>();
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    let old = Mutex::new(None);
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        *old.lock() = tables.lock().user().unmap(USER_WINDOW);
        tables
            .lock()
            .user()
            .map(USER_WINDOW, frame(NEW))
            .expect("it was unmapped");
        invlpgb::leave_out(instruction);
        Flush::Done.run(|| {
            tlb.flush(
                &space,
                Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K)),
            )
            .wait()
        });
        invlpgb::leave_out(LeaveOut::Nothing);
    });
    let expected = if instruction == LeaveOut::Nothing {
        NEW
    } else {
        OLD
    };
    observed.assert_all(|_| Some(expected));
    tlb.retire(&space).expect("nobody uses the space");
}

static WITH: Auto<Kernel, BroadcastCpu> = Auto::new();
static WITHOUT: Auto<Kernel, BroadcastCpu> = Auto::new();

/// The same binary broadcasts where CPUID has INVLPGB, and interrupts where it has not.
///
/// # Panics
/// When it does not.
pub fn chosen_by_cpuid() {
    invlpgb::start();
    assert!(invlpgb::features().invlpgb.is_some());
    assert_eq!(WITH.init(config_of(invlpgb::features())), Ok(()));
    assert_eq!(WITH.courier(), CourierKind::Invlpgb);
    if detect().invlpgb.is_none() {
        assert_eq!(WITHOUT.init(config()), Ok(()));
        assert_eq!(WITHOUT.courier(), CourierKind::Concurrent);
        assert_eq!(Global::TLB.init(config()), Err(InitError::NoInvlpgb));
    }
}
