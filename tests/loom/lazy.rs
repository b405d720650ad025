//! Lazy mode against flushes (invariant 6).

use shootdown::{TlbFlusher, variant::Broken};

use crate::{
    cpu::Before,
    explore::{STALE, Scenario},
    machine::{Machine, boot, config, on, start},
    page::Page,
};

/// CPU 1 uses the space, and its TLB holds page X.
fn prepare() -> &'static Machine {
    let machine = boot(2, config());
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
    });
    machine
}

/// CPU 1 leaves lazy mode while CPU 0 flushes a page. NMI handlers come in.
const LEAVE: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        let outer = on(1, || machine.tlb.lazy_enter());
        machine.set_before(Before::Nmi);
        let cpu1 = start(1, move || {
            machine.lazy_leave(outer, machine.a());
            machine.access(Page::X);
            machine.take_interrupt();
            machine.access(Page::X);
            machine.unload();
        });
        machine.unmap(Page::X);
        cpu1.join().unwrap();
    },
    4,
);

#[test]
fn leave() {
    LEAVE.is_clean();
}

#[test]
fn leave_without_the_barrier() {
    LEAVE.catches(Broken::NoLazyBarrier, STALE);
}

#[test]
fn leave_without_the_barrier_of_the_flush() {
    LEAVE.catches(Broken::NoFlushBarrier, STALE);
}

#[test]
fn leave_without_comparing_generations() {
    LEAVE.catches(Broken::LazyLeaveNoCompare, STALE);
}

#[test]
fn leave_with_an_nmi_that_reads_user_memory() {
    LEAVE.catches(Broken::NmiDuringSwitch, STALE);
}

/// CPU 1 enters lazy mode, and leaves it, while CPU 0 flushes a page.
const ENTER: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        let cpu1 = start(1, || {
            let outer = machine.tlb.lazy_enter();
            machine.lazy_leave(outer, machine.a());
            machine.access(Page::X);
            machine.unload();
        });
        machine.unmap(Page::X);
        cpu1.join().unwrap();
    },
    4,
);

#[test]
fn enter_and_leave() {
    ENTER.is_clean();
}

#[test]
fn enter_and_leave_without_the_barrier() {
    ENTER.catches(Broken::NoLazyBarrier, STALE);
}

#[test]
fn enter_and_leave_without_comparing_generations() {
    ENTER.catches(Broken::LazyLeaveNoCompare, STALE);
}

/// CPU 1 is lazy while CPU 0 frees a table, through which CPU 1 must not even speculate afterwards.
const FREED: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        let outer = on(1, || machine.tlb.lazy_enter());
        machine.set_before(Before::Speculation);
        let cpu1 = start(1, move || {
            machine.take_interrupt();
            machine.speculate();
            machine.lazy_leave(outer, machine.a());
            machine.unload();
        });
        machine.unmap_with(Page::X, Page::X.request().tables_freed());
        cpu1.join().unwrap();
    },
    4,
);

#[test]
fn freed_tables() {
    FREED.is_clean();
}

#[test]
fn freed_tables_with_the_lazy_cpu_skipped() {
    FREED.catches(Broken::LazySkippedFreed, STALE);
}

#[test]
fn freed_tables_with_the_lazy_cpu_staying() {
    FREED.catches(Broken::LazyStays, STALE);
}
