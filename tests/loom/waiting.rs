//! CPUs that wait against flushes: ours, which is lazy mode, and the protocol that was posted for KVM.

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
    machine.virtualize();
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
    });
    machine
}

/// CPU 1 begins to wait, but is let go before it has halted; or it halts, and the host polls for its kick instead of letting
/// another vCPU run, so that there is no exchange when it goes on (kvm_vcpu_halt).
const BRIEF: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        machine.set_before(Before::Nmi);
        let cpu1 = start(1, || {
            let waiting = machine.tlb.wait_enter();
            machine.wait_leave(waiting);
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

/// CPU 1 halts, which stops the vCPU until it is kicked, and goes on. The one case that the posted protocol gets right.
const HALTED: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        let cpu1 = start(1, || {
            let waiting = machine.tlb.wait_enter();
            machine.preempt();
            machine.wait_leave(waiting);
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
fn brief() {
    BRIEF.is_clean();
}

#[test]
fn brief_as_posted() {
    BRIEF.catches(Broken::WaitAsPosted, STALE);
}

#[test]
fn brief_without_the_barrier() {
    BRIEF.catches(Broken::NoLazyBarrier, STALE);
}

#[test]
fn brief_without_comparing_generations() {
    BRIEF.catches(Broken::LazyLeaveNoCompare, STALE);
}

#[test]
fn brief_without_the_barrier_of_the_flush() {
    BRIEF.catches(Broken::NoFlushBarrier, STALE);
}

#[test]
fn halted() {
    HALTED.is_clean();
}

/// CPU 1 waits, and an interrupt that touches user memory comes in: it leaves first, and lets the CPU wait again.
const INTERRUPTED: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        let cpu1 = start(1, || {
            let waiting = machine.tlb.wait_enter();
            machine.switch(machine.a());
            machine.access(Page::X);
            let _ = machine.tlb.wait_enter();
            machine.wait_leave(waiting);
            machine.access(Page::X);
            machine.take_interrupt();
            machine.unload();
        });
        machine.unmap(Page::X);
        cpu1.join().unwrap();
    },
    3,
);

#[test]
fn interrupted() {
    INTERRUPTED.is_clean();
}

#[test]
fn interrupted_without_comparing_generations() {
    INTERRUPTED.catches(Broken::LazyLeaveNoCompare, STALE);
}

/// CPU 1 waits while CPU 0 frees a table, through which CPU 1 must not even speculate afterwards.
const FREED: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        let waiting = on(1, || machine.tlb.wait_enter());
        machine.set_before(Before::Speculation);
        let cpu1 = start(1, move || {
            machine.take_interrupt();
            machine.speculate();
            machine.wait_leave(waiting);
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
fn freed_tables_with_the_waiting_cpu_skipped() {
    FREED.catches(Broken::LazySkippedFreed, STALE);
}
