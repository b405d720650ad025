//! CPUs and spaces that come and go, on threads that stand for CPUs.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use shootdown::{
    CpuOutOfRange, CpuSet, OnlineError, RetireError, STUCK_AFTER, TlbFlusher,
    x86_64::{ConcurrentIpi, Config, Features, Ipi},
};

use crate::{
    machine,
    platform::{LogX86, become_cpu, panic_of, set_registers, take_log},
};

fn config() -> Config {
    Config::new(Features::default(), 0x1000)
}

#[test]
fn online_names_what_is_wrong() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>);
    assert_eq!(TLB.online(), Err(OnlineError::NotInitialized));
    TLB.init(config()).unwrap();
    assert_eq!(TLB.online(), Ok(()));
    assert_eq!(TLB.online(), Err(OnlineError::AlreadyOnline { cpu: 0 }));
    become_cpu(2);
    let error = CpuOutOfRange { cpu: 2, limit: 2 };
    assert_eq!(TLB.online(), Err(OnlineError::OutOfRange(error)));
    become_cpu(1);
    set_registers(|registers| registers.cr3 = 0xa000);
    assert_eq!(
        TLB.online(),
        Err(OnlineError::NotKernelRoot { loaded: 0xa000 })
    );
    set_registers(|registers| registers.cr3 = 0x1000);
    // No global pages here, unlike on the first CPU.
    set_registers(|registers| registers.cr4 = 0);
    let unequal = TLB.online();
    let (has, expected) = (1 << 43, 1 << 43 | 1 << 7);
    assert_eq!(
        unequal,
        Err(OnlineError::UnequalFeatures {
            cpu: 1,
            has,
            expected
        })
    );
    assert!(unequal.unwrap_err().to_string().contains("CPU 1"));
    set_registers(|registers| registers.cr4 = 1 << 7);
    assert_eq!(TLB.online(), Ok(()));
    TLB.offline();
    assert_eq!(TLB.online(), Ok(()));
}

#[test]
fn global_kernel_mappings_need_global_pages() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>);
    TLB.init(config().kernel_mappings_global(true)).unwrap();
    set_registers(|registers| registers.cr4 = 0);
    assert_eq!(TLB.online(), Err(OnlineError::NoGlobalPages { cpu: 0 }));
}

#[test]
fn a_platform_serves_one_flusher() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>);
    static OTHER: ConcurrentIpi<Kernel, LogX86, 2> = ConcurrentIpi::new();
    TLB.init(config()).unwrap();
    OTHER.init(config()).unwrap();
    TLB.online().unwrap();
    TLB.offline();
    become_cpu(1);
    assert_eq!(OTHER.online(), Err(OnlineError::OtherFlusher));
    // Nor does it touch the state of CPUs that are online in the first one.
    become_cpu(0);
    TLB.online().unwrap();
    let message = panic_of(|| OTHER.flush_kernel(shootdown::Request::all()).wait());
    assert!(message.contains("flush on CPU 0, which is not online"));
    OTHER.poll();
    OTHER.handle_interrupt();
    become_cpu(1);
    TLB.online().unwrap();
}

#[test]
fn flushes_before_other_cpus_are_online_need_no_interrupt() {
    machine!(Kernel, 64, TLB: Ipi<Kernel, LogX86>);
    TLB.init(config()).unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.switch(&space) };
    TLB.flush(&space, shootdown::Request::all().tables_freed())
        .wait();
    TLB.flush_kernel(shootdown::Request::all()).wait();
    assert!(!take_log().iter().any(|what| what.starts_with("ipi")));
    // SAFETY: as above.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}

#[test]
fn retire_names_cpus_that_run_the_space_and_unloads_lazy_ones() {
    machine!(Kernel, 2, TLB: ConcurrentIpi<Kernel, LogX86>);
    TLB.init(config()).unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    let (step, done) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            become_cpu(1);
            TLB.online().unwrap();
            // SAFETY: nothing is translated on the host.
            unsafe { TLB.switch(&space) };
            step.wait();
            step.wait();
            let _ = TLB.lazy_enter();
            step.wait();
            while !done.load(SeqCst) {
                TLB.poll();
            }
            // The kernel's root: the space was unloaded.
            assert_eq!(take_log().last().unwrap(), "cr3 0x1000");
            TLB.offline();
        });
        step.wait();
        let mut running = CpuSet::EMPTY;
        running.insert(1).unwrap();
        assert_eq!(TLB.retire(&space), Err(RetireError::Running(running)));
        assert!(!space.is_retired());
        step.wait();
        step.wait();
        assert_eq!(TLB.retire(&space), Ok(()));
        done.store(true, SeqCst);
    });
    assert_eq!(TLB.retire(&space), Err(RetireError::AlreadyRetired));
}

#[test]
fn a_stopped_cpu_is_reported_and_can_be_declared_dead() {
    static REPORTED: AtomicU64 = AtomicU64::new(0);
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>, stuck = |cpu, turns| {
        assert_eq!((cpu, turns), (1, STUCK_AFTER));
        REPORTED.fetch_add(1, SeqCst);
        // SAFETY: its thread has ended.
        unsafe { TLB.declare_dead(1) };
    });
    TLB.init(config()).unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            become_cpu(1);
            TLB.online().unwrap();
            // SAFETY: nothing is translated on the host.
            unsafe { TLB.switch(&space) };
        });
    });
    TLB.flush(&space, shootdown::Request::all()).wait();
    assert_eq!(REPORTED.load(SeqCst), 1);
    assert_eq!(
        take_log().iter().filter(|what| *what == "ipi [1]").count(),
        1
    );
    // Never waited for again.
    TLB.flush_kernel(shootdown::Request::all()).wait();
    TLB.flush(&space, shootdown::Request::all()).wait();
    TLB.retire(&space).unwrap();
}

#[test]
fn two_initiators_serve_each_other() {
    machine!(Kernel, 2, TLB: ConcurrentIpi<Kernel, LogX86>);
    TLB.init(config()).unwrap();
    let space = &TLB.space(0xa000).unwrap();
    let start = &Barrier::new(2);
    thread::scope(|scope| {
        for cpu in 0..2 {
            scope.spawn(move || {
                become_cpu(cpu);
                TLB.online().unwrap();
                // SAFETY: nothing is translated on the host.
                unsafe { TLB.switch(space) };
                start.wait();
                // No CPU takes an interrupt here: only waiters serve.
                for _ in 0..10_000 {
                    TLB.flush(space, shootdown::Request::all()).wait();
                }
                // Serve until the other one is done.
                TLB.offline();
            });
        }
    });
    let counters = TLB.counters();
    assert_eq!(counters.flushes, 20_000);
    TLB.init(config()).unwrap_err();
    become_cpu(0);
    TLB.online().unwrap();
    TLB.retire(space).unwrap();
}
