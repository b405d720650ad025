//! A space that gets its global PCID against CPUs that load it, run it, are lazy in it or flush it.

use shootdown::{TlbFlusher, variant::Broken};

use crate::{
    broadcast::{Effect, config},
    cpu::Before,
    explore::{STALE, Scenario, unless_refused},
    machine::{self, Machine, boot, on, start},
    page::Page,
};

fn machine(cpus: usize, effect: Effect) -> &'static Machine {
    let machine = boot(cpus, config());
    machine.set_effect(effect);
    machine
}

/// Promotes the space.
fn promote(machine: &'static Machine) {
    machine.tlb.make_global(machine.a()).unwrap();
}

/// CPU 1 comes back to the space, with the PCID of its own that it had, or with the global one, while CPU 0 promotes
/// the space and then flushes it without telling anybody.
fn come_back(effect: Effect, weak: bool) {
    let machine = machine(2, effect);
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
        machine.switch(machine.b());
    });
    if weak {
        machine.weaken(0);
    }
    let cpu1 = start(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
        machine.take_interrupt();
        machine.access(Page::X);
        machine.unload();
    });
    promote(machine);
    machine.unmap(Page::X);
    cpu1.join().unwrap();
}

const COME_BACK: Scenario = Scenario::bounded(|| come_back(Effect::Early, false), 4);
const COME_BACK_LATE: Scenario = Scenario::bounded(|| come_back(Effect::Late, false), 4);

#[test]
fn come_back_to_a_promoted_space() {
    COME_BACK.is_clean();
    COME_BACK_LATE.is_clean();
}

#[test]
fn come_back_with_switching_cpus_skipped_by_the_promotion() {
    COME_BACK.catches(Broken::PromotionSkipsSwitching, STALE);
}

#[test]
fn come_back_without_the_barrier_of_the_switch() {
    COME_BACK.catches(Broken::NoSwitchBarrier, STALE);
}

#[test]
fn come_back_without_the_barrier_of_the_promotion() {
    Scenario::bounded(|| come_back(Effect::Early, true), 4).fails(STALE);
}

#[test]
fn come_back_without_a_fence_before_the_broadcast() {
    COME_BACK.catches(Broken::NoFenceBeforeInvlpgb, STALE);
}

#[test]
fn come_back_without_waiting_for_the_broadcast() {
    COME_BACK_LATE.catches(Broken::NoTlbsync, STALE);
}

#[test]
fn come_back_and_wait_for_the_broadcast_elsewhere() {
    COME_BACK_LATE.catches(Broken::TlbsyncElsewhere, STALE);
}

/// CPU 1 is lazy in the space with a PCID of its own, and leaves lazy mode or takes its interrupt while CPU 0 promotes the
/// space and flushes it.
fn lazy(before: Before) {
    let machine = machine(2, Effect::Early);
    let outer = on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
        machine.tlb.lazy_enter()
    });
    machine.set_before(before);
    let cpu1 = start(1, move || {
        machine.take_interrupt();
        machine.lazy_leave(outer, machine.a());
        machine.access(Page::X);
        machine.take_interrupt();
        machine.access(Page::X);
        machine.unload();
    });
    promote(machine);
    machine.unmap(Page::X);
    cpu1.join().unwrap();
}

const LAZY: Scenario = Scenario::bounded(|| lazy(Before::Nmi), 3);

#[test]
fn lazy_in_a_promoted_space() {
    LAZY.is_clean();
}

#[test]
fn lazy_without_comparing_generations() {
    LAZY.catches(Broken::LazyLeaveNoCompare, STALE);
}

/// CPU 1 runs the space with a PCID of its own while CPU 0 promotes it. While that waits, CPU 2 flushes the space.
const FLUSH: Scenario = Scenario::bounded(
    || {
        let machine = machine(3, Effect::Early);
        on(1, || {
            machine.switch(machine.a());
            machine.access(Page::X);
        });
        machine.set_meanwhile(|| on(2, || machine::machine().unmap(Page::X)));
        let cpu1 = start(1, || {
            machine::machine().access(Page::X);
            machine::machine().take_interrupt();
            machine::machine().access(Page::X);
            machine::machine().unload();
        });
        promote(machine);
        cpu1.join().unwrap();
    },
    4,
);

#[test]
fn flush_a_space_in_transition() {
    FLUSH.is_clean();
}

#[test]
fn flush_with_the_transition_ended_early() {
    FLUSH.catches(Broken::TransitionClearedEarly, STALE);
}

/// CPU 0 flushes the space while CPU 1 promotes it and CPU 2 comes by, perhaps with the global PCID already, and goes.
/// Later it comes back.
fn visit() {
    let machine = machine(3, Effect::Early);
    on(2, || {
        machine.switch(machine.a());
        machine.switch(machine.b());
    });
    let cpu1 = start(1, || promote(machine::machine()));
    let cpu2 = start(2, || {
        machine.switch(machine.a());
        machine.access(Page::X);
        machine.switch(machine.b());
    });
    machine.unmap(Page::X);
    cpu1.join().unwrap();
    cpu2.join().unwrap();
    on(2, || {
        machine.switch(machine.a());
        machine.access(Page::X);
    });
}

const VISIT: Scenario = Scenario::bounded(visit, 2);

#[test]
fn visit_a_space_in_transition() {
    VISIT.is_clean();
}

#[test]
fn visit_without_the_barrier_of_the_flush() {
    VISIT.catches(Broken::NoFlushBarrier, STALE);
}

#[test]
fn visit_with_the_global_pcid_left_out() {
    VISIT.catches(Broken::TransitionNotBroadcast, STALE);
}

/// CPU 1 promotes the space while CPU 0 retires it. The PCID must not be lost, whoever comes first.
const RETIRE: Scenario = Scenario::full(|| {
    let machine = machine(2, Effect::Early);
    let cpu1 = start(1, || {
        unless_refused(|| promote(machine::machine()));
    });
    machine.tlb.retire(machine.a()).unwrap();
    cpu1.join().unwrap();
    assert_eq!(machine.tlb.pcid_use().unwrap().in_use, 0);
});

#[test]
fn retire_a_space_that_is_being_promoted() {
    RETIRE.is_clean();
}

/// Both CPUs promote the space: it gets one PCID, and the other one is not lost.
const TWICE: Scenario = Scenario::full(|| {
    let machine = machine(2, Effect::Early);
    let cpu1 = start(1, || promote(machine::machine()));
    promote(machine);
    cpu1.join().unwrap();
    assert_eq!(machine.tlb.pcid_use().unwrap().in_use, 1);
});

#[test]
fn promote_a_space_twice_at_once() {
    TWICE.is_clean();
}
