//! vCPUs that KVM preempts against flushes that leave them to it (invariant 14). A vCPU and its host are one thread: they
//! never act at once.

use shootdown::variant::Broken;

use crate::{
    cpu::Before,
    explore::{STALE, Scenario},
    machine::{Machine, boot, config, on, start},
    page::Page,
};

/// CPU 1 is a vCPU that uses the space, and its TLB holds page X.
fn prepare() -> &'static Machine {
    let machine = boot(2, config());
    machine.virtualize();
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
    });
    machine
}

/// CPU 1 is preempted, comes back and goes on, while CPU 0 flushes a page.
const PREEMPTED: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        machine.set_before(Before::Nmi);
        let cpu1 = start(1, || {
            machine.access(Page::X);
            machine.preempt();
            machine.access(Page::X);
            machine.take_interrupt();
            machine.access(Page::X);
            machine.unload();
        });
        machine.unmap(Page::X);
        cpu1.join().unwrap();
    },
    5,
);

#[test]
fn preempted() {
    PREEMPTED.is_clean();
}

#[test]
fn preempted_and_marked_by_a_plain_store() {
    PREEMPTED.catches(Broken::PreemptedPlainStore, STALE);
}

#[test]
fn preempted_and_not_marked() {
    PREEMPTED.catches(Broken::PreemptedSkippedUnmarked, STALE);
}

#[test]
fn preempted_and_back_before_it_is_marked() {
    PREEMPTED.catches(Broken::PreemptedResultIgnored, STALE);
}

/// CPU 1 is preempted while CPU 0 frees a table, through which CPU 1 must not even speculate afterwards.
const FREED: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        machine.set_before(Before::Speculation);
        let cpu1 = start(1, || {
            machine.preempt();
            machine.speculate();
            machine.take_interrupt();
            machine.speculate();
            machine.unload();
        });
        machine.unmap_with(Page::X, Page::X.request().tables_freed());
        cpu1.join().unwrap();
    },
    5,
);

#[test]
fn freed_tables() {
    FREED.is_clean();
}

#[test]
fn freed_tables_and_not_marked() {
    FREED.catches(Broken::PreemptedSkippedUnmarked, STALE);
}

/// CPU 1 is preempted between two spaces: it has read the generation, and its PCID is said to be fresh.
const SWITCHING: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        on(1, || machine.switch(machine.b()));
        let cpu1 = start(1, || {
            machine.switch(machine.a());
            machine.access(Page::X);
            machine.preempt();
            machine.access(Page::X);
            machine.take_interrupt();
            machine.unload();
        });
        machine.unmap(Page::X);
        cpu1.join().unwrap();
    },
    4,
);

#[test]
fn preempted_after_a_switch() {
    SWITCHING.is_clean();
}

#[test]
fn preempted_after_a_switch_and_not_marked() {
    SWITCHING.catches(Broken::PreemptedSkippedUnmarked, STALE);
}

/// Two CPUs flush two pages, and mark CPU 1 one after the other.
const TWO_INITIATORS: Scenario = Scenario::bounded(
    || {
        let machine = boot(3, config());
        machine.virtualize();
        on(1, || {
            machine.switch(machine.a());
            machine.access(Page::X);
            machine.access(Page::Y);
        });
        let cpu1 = start(1, || {
            machine.preempt();
            machine.access(Page::X);
            machine.access(Page::Y);
            machine.take_interrupt();
            machine.access(Page::X);
            machine.access(Page::Y);
            machine.unload();
        });
        let cpu2 = start(2, || {
            machine.change(Page::Y);
            machine.post(Page::Y.request())
        });
        machine.unmap(Page::X);
        cpu1.join().unwrap();
        let posted = cpu2.join().unwrap();
        on(2, || machine.complete(&posted));
    },
    2,
);

#[test]
fn two_initiators() {
    TWO_INITIATORS.is_clean();
}

#[test]
fn two_initiators_and_not_marked() {
    TWO_INITIATORS.catches(Broken::PreemptedSkippedUnmarked, STALE);
}
