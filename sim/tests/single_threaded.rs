//! arm64: how often 32 single-threaded processes on 32 CPUs disturb the other CPUs. What is counted are the instructions.
#![cfg(not(loom))]

use std::cell::Cell;

use shootdown::{
    ChangeFlags, CpuSlot, Granule, Paging, Platform, Range, Request, Space, Stride, TlbFlusher,
    aarch64::{
        Config, Instructions, Tlb, Tlbi,
        policy::{AlwaysBroadcast, NeverLoaded, NotRunning, Policy},
    },
};

const CPUS: usize = 32;
const FLUSHES: u64 = 100;
/// After so many flushes each process moves to the next CPU.
const STAY: u64 = 10;

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
    static BROADCASTS: Cell<u64> = const { Cell::new(0) };
    static SLOTS: Cell<&'static [CpuSlot]> = const { Cell::new(&[]) };
    static LOCALS: Cell<u64> = const { Cell::new(0) };
}

/// The kernel.
struct Kernel;

// SAFETY: one thread is all CPUs by turns, so nothing is preempted, and each CPU has its own slot.
unsafe impl Platform for Kernel {
    const CPUS: usize = CPUS;

    fn current_cpu() -> usize {
        CPU.get()
    }

    fn pin() {}

    fn unpin() {}

    fn irq_save() -> usize {
        0
    }

    fn irq_restore(_: usize) {}

    fn slot(cpu: usize) -> &'static CpuSlot {
        &SLOTS.get()[cpu]
    }

    fn relax() {
        unreachable!("there is nobody to wait for");
    }
}

/// Counts invalidations.
struct Counting;

// SAFETY: nothing is translated here, so there is nothing to drop.
unsafe impl Instructions for Counting {
    fn tlbi(operation: Tlbi, _: u64) {
        let count = if operation.is_broadcast() {
            &BROADCASTS
        } else {
            &LOCALS
        };
        count.set(count.get() + 1);
    }

    fn dsb_ishst() {}

    fn dsb_ish() {}

    fn dsb_nsh() {}

    fn isb() {}

    unsafe fn write_ttbr0(_: u64) {}

    fn regime() -> (u8, u64) {
        (1, 0)
    }

    fn id_aa64mmfr0() -> u64 {
        0
    }

    fn id_aa64mmfr2() -> u64 {
        0
    }

    fn id_aa64isar0() -> u64 {
        0
    }

    fn midr() -> u64 {
        0
    }

    fn read_ttbr1() -> u64 {
        0
    }

    unsafe fn write_ttbr1(_: u64) {}

    fn tcr() -> u64 {
        16 | 16 << 16 | 0b10 << 30
    }
}

type Flusher<M> = Tlb<Kernel, M, Counting, 1, 4>;

/// Broadcasts of all processes' flushes, local invalidations of the same, and stale entries found on arrival.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figures {
    broadcasts: u64,
    locals: u64,
    stale: u64,
}

/// Each process changes a page, flushes it, and sometimes moves on.
fn processes<M: Policy>(moves: bool, flags: ChangeFlags) -> Figures {
    // A slot serves one flusher for good.
    let slots: Vec<CpuSlot> = (0..CPUS).map(|_| CpuSlot::new()).collect();
    SLOTS.set(slots.leak());
    let flusher = Flusher::<M>::new();
    let config = Config::new(Paging::arm64(Granule::Size4K), 0x1000);
    flusher.init(config).unwrap();
    let roots = (0..CPUS as u64).map(|number| 0x10_0000 + number * 0x1000);
    let spaces: Vec<Space> = roots.map(|root| flusher.space(root).unwrap()).collect();
    let on_all = |act: &dyn Fn()| {
        for cpu in 0..CPUS {
            CPU.set(cpu);
            act();
        }
    };
    on_all(&|| flusher.online().unwrap());
    let range = Range::new(flusher.paging(), 0x4000_0000, 1, Stride::Size4K).unwrap();
    let request = Request::range(range).with(flags);
    let mut figures = Figures::default();
    for round in 0..FLUSHES {
        if moves && round % STAY == 0 {
            // SAFETY: nothing is translated here.
            on_all(&|| unsafe { flusher.unload() });
        }
        for (number, space) in spaces.iter().enumerate() {
            let moved = if moves { (round / STAY) as usize } else { 0 };
            CPU.set((number + moved) % CPUS);
            let locals = LOCALS.get();
            // SAFETY: nothing is translated here, and the space lives until it has retired below.
            unsafe { flusher.switch(space) };
            figures.stale += LOCALS.get() - locals;
            let (broadcasts, locals) = (BROADCASTS.get(), LOCALS.get());
            flusher.flush(space, request).wait();
            figures.broadcasts += BROADCASTS.get() - broadcasts;
            figures.locals += LOCALS.get() - locals;
        }
    }
    // SAFETY: nothing is translated here.
    on_all(&|| unsafe { flusher.unload() });
    for space in spaces {
        flusher.retire(&space).unwrap();
    }
    on_all(&|| flusher.offline());
    figures
}

const ALL: u64 = FLUSHES * CPUS as u64;
const PLAIN: ChangeFlags = ChangeFlags::empty();

#[test]
fn without_a_policy_each_flush_disturbs_all() {
    let expected = Figures {
        broadcasts: ALL,
        ..Figures::default()
    };
    assert_eq!(processes::<AlwaysBroadcast>(false, PLAIN), expected);
}

#[test]
fn local_disturbs_nobody() {
    let at_home = Figures {
        locals: ALL,
        stale: CPUS as u64,
        ..Figures::default()
    };
    assert_eq!(processes::<NotRunning>(false, PLAIN), at_home);
}

#[test]
fn local_disturbs_nobody_when_processes_move() {
    let moving = Figures {
        locals: ALL,
        stale: ALL / STAY,
        ..Figures::default()
    };
    assert_eq!(processes::<NotRunning>(true, PLAIN), moving);
}

#[test]
fn local_broadcasts_freed_tables_and_attributes() {
    for flags in [ChangeFlags::TABLES_FREED, ChangeFlags::ATTRIBUTES_CHANGED] {
        let figures = processes::<NotRunning>(false, flags);
        assert_eq!((figures.broadcasts, figures.locals), (ALL, 0), "{flags:?}");
    }
}

#[test]
fn active_cpu_disturbs_nobody_until_a_process_moves() {
    let at_home = Figures {
        locals: ALL,
        ..Figures::default()
    };
    assert_eq!(processes::<NeverLoaded>(false, PLAIN), at_home);
    let first_stay = STAY * CPUS as u64;
    let moving = Figures {
        locals: first_stay,
        broadcasts: ALL - first_stay,
        ..Figures::default()
    };
    assert_eq!(processes::<NeverLoaded>(true, PLAIN), moving);
}
