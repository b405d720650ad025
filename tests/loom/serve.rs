//! Post, serve, acknowledge.

use shootdown::{Batch, variant::Broken, x86_64::CourierKind};

use crate::{
    cpu::Before,
    explore::{FOREVER, STALE, Scenario},
    machine::{boot, config, on, start},
    page::Page,
};

/// CPU 1 serves CPU 0. NMI handlers come in just before CPU 1 flushes.
const ONE: Scenario = Scenario::full(|| one(CourierKind::Concurrent));

fn one(courier: CourierKind) {
    let machine = boot(2, config());
    machine.tlb.choose(courier);
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
    });
    machine.set_before(Before::Nmi);
    let cpu1 = start(1, || {
        machine.take_interrupt();
        machine.access(Page::X);
        machine.finish(2);
        machine.access(Page::X);
    });
    machine.unmap(Page::X);
    machine.finish(2);
    cpu1.join().unwrap();
}

#[test]
fn one_initiator() {
    ONE.is_clean();
}

#[test]
fn one_initiator_one_step_after_the_other() {
    Scenario::full(|| one(CourierKind::Serial)).is_clean();
}

#[test]
fn one_initiator_acknowledged_before_the_flush() {
    ONE.catches(Broken::AckBeforeFlush, STALE);
}

#[test]
fn one_initiator_not_served() {
    ONE.catches(Broken::SkipFlush, STALE);
}

#[test]
fn one_initiator_that_does_not_wait() {
    ONE.catches(Broken::NoWait, STALE);
}

/// CPU 0 has two flushes under way at once.
const TWO_FLUSHES: Scenario = Scenario::bounded(
    || {
        let machine = boot(2, config());
        on(1, || {
            machine.switch(machine.a());
            machine.access(Page::X);
            machine.access(Page::Y);
        });
        let cpu1 = start(1, || {
            machine.take_interrupt();
            machine.access(Page::X);
            machine.access(Page::Y);
            machine.unload();
        });
        machine.change(Page::X);
        let first = machine.post(Page::X.request());
        machine.change(Page::Y);
        let second = machine.post(Page::Y.request());
        machine.complete(&second);
        machine.reuse(Page::Y);
        machine.complete(&first);
        machine.reuse(Page::X);
        cpu1.join().unwrap();
    },
    4,
);

#[test]
fn two_flushes() {
    TWO_FLUSHES.is_clean();
}

#[test]
fn two_flushes_with_the_generation_read_late() {
    TWO_FLUSHES.catches(Broken::GenerationReadLate, STALE);
}

#[test]
fn two_flushes_with_only_the_last_one_served() {
    TWO_FLUSHES.catches(Broken::PartialNotContiguous, STALE);
}

/// CPUs 0 and 1 use the space and flush it, each waiting for the other.
const EACH_OTHER: Scenario = Scenario::bounded(|| each_other(CourierKind::Concurrent), 3);

fn each_other(courier: CourierKind) {
    let machine = boot(2, config());
    machine.tlb.choose(courier);
    for cpu in 0..2 {
        on(cpu, || {
            machine.switch(machine.a());
            machine.access(Page::X);
            machine.access(Page::Y);
        });
    }
    let cpu1 = start(1, || {
        machine.unmap(Page::Y);
        machine.access(Page::Y);
        machine.finish(2);
        machine.access(Page::X);
    });
    machine.unmap(Page::X);
    machine.access(Page::X);
    machine.finish(2);
    machine.access(Page::Y);
    cpu1.join().unwrap();
}

#[test]
fn two_initiators_wait_for_each_other() {
    EACH_OTHER.is_clean();
}

#[test]
fn two_initiators_one_step_after_the_other() {
    Scenario::bounded(|| each_other(CourierKind::Serial), 3).is_clean();
}

#[test]
fn two_initiators_that_do_not_flush_themselves() {
    EACH_OTHER.catches(Broken::SkipLocal, STALE);
}

#[test]
fn two_initiators_that_do_not_wait() {
    EACH_OTHER.catches(Broken::NoWait, STALE);
}

/// CPUs 0 and 1 flush what CPU 2 uses; the second one may find an interrupt on its way already and rely on it.
const MERGED: Scenario = Scenario::bounded(
    || {
        let machine = boot(3, config());
        on(2, || {
            machine.switch(machine.a());
            machine.access(Page::X);
            machine.access(Page::Y);
        });
        let cpu1 = start(1, || {
            machine.change(Page::Y);
            machine.post(Page::Y.request())
        });
        let cpu2 = start(2, || machine.take_interrupt());
        machine.change(Page::X);
        let first = machine.post(Page::X.request());
        let second = cpu1.join().unwrap();
        cpu2.join().unwrap();
        // Whatever interrupts were sent are taken now.
        on(2, || machine.take_interrupt());
        machine.complete(&first);
        machine.reuse(Page::X);
        on(1, || machine.complete(&second));
        machine.reuse(Page::Y);
        on(2, || {
            machine.access(Page::X);
            machine.access(Page::Y);
        });
    },
    4,
);

#[test]
fn two_initiators_and_one_interrupt() {
    MERGED.is_clean();
}

#[test]
fn two_initiators_and_one_interrupt_without_the_barrier_of_the_server() {
    MERGED.catches(Broken::NoServeBarrier, FOREVER);
}

/// CPU 0 collects changes in two spaces, of which CPU 1 uses the one that was changed first.
const BATCH: Scenario = Scenario::full(|| {
    let machine = boot(2, config());
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
    });
    let cpu1 = start(1, || {
        machine.take_interrupt();
        machine.access(Page::X);
        machine.unload();
    });
    let mut batch = Batch::<_, 1, 2>::new(&machine.tlb);
    machine.change(Page::X);
    batch.add(machine.a(), Page::X.request());
    batch.add(machine.b(), Page::Y.request());
    batch.flush();
    machine.reuse(Page::X);
    cpu1.join().unwrap();
});

#[test]
fn batch() {
    BATCH.is_clean();
}

#[test]
fn batch_that_completes_its_last_member_only() {
    BATCH.catches(Broken::BatchLastOnly, STALE);
}
