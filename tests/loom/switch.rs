//! Context switches against flushes (invariants 1, 2 and 7).

use shootdown::{Request, TlbFlusher, variant::Broken};

use crate::{
    cpu::Before,
    explore::{STALE, Scenario},
    machine::{boot, config, on, start},
    page::Page,
};

/// CPU 1 comes back to a space of whose mask it is still a member, while CPU 0 flushes.
const COME_BACK: Scenario = Scenario::full(|| {
    let machine = boot(2, config());
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
        machine.switch(machine.b());
    });
    let cpu1 = start(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
        machine.take_interrupt();
        machine.access(Page::X);
        machine.unload();
    });
    machine.unmap(Page::X);
    cpu1.join().unwrap();
});

#[test]
fn come_back() {
    COME_BACK.is_clean();
}

#[test]
fn come_back_without_the_barrier_of_the_flush() {
    COME_BACK.catches(Broken::NoFlushBarrier, STALE);
}

#[test]
fn come_back_without_the_barrier_of_the_switch() {
    COME_BACK.catches(Broken::NoSwitchBarrier, STALE);
}

#[test]
fn come_back_with_switching_cpus_skipped() {
    COME_BACK.catches(Broken::SwitchingSkipped, STALE);
}

#[test]
fn come_back_with_switching_taken_for_done() {
    COME_BACK.catches(Broken::SwitchingDone, STALE);
}

#[test]
fn come_back_without_waiting() {
    COME_BACK.catches(Broken::NoWait, STALE);
}

#[test]
fn come_back_without_flushing() {
    COME_BACK.catches(Broken::SkipFlush, STALE);
}

/// CPU 1 loads the space for the first time.
fn first_visit(weak: bool) {
    let machine = boot(2, config());
    if weak {
        machine.weaken(1);
    }
    let cpu1 = start(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
        machine.take_interrupt();
        machine.access(Page::X);
        machine.unload();
    });
    machine.unmap(Page::X);
    cpu1.join().unwrap();
}

#[test]
fn first_visit_of_a_space() {
    Scenario::full(|| first_visit(false)).is_clean();
}

#[test]
fn first_visit_without_the_barrier_after_the_mask() {
    Scenario::full(|| first_visit(true)).fails(STALE);
}

/// CPU 1 leaves the space for another one, speculating through it up to the write of CR3.
const LEAVE: Scenario = Scenario::full(|| leave(Before::Speculation));

/// The same with an NMI that comes just before.
const LEAVE_WITH_NMI: Scenario = Scenario::full(|| leave(Before::Nmi));

fn leave(before: Before) {
    let machine = boot(2, config());
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
    });
    machine.set_before(before);
    let cpu1 = start(1, || {
        machine.access(Page::X);
        machine.switch(machine.b());
    });
    machine.unmap(Page::X);
    cpu1.join().unwrap();
}

#[test]
fn leave_while_speculating() {
    LEAVE.is_clean();
}

#[test]
fn leave_with_the_mask_bit_cleared_early() {
    LEAVE.catches(Broken::MaskClearedEarly, STALE);
}

#[test]
fn leave_with_the_new_space_announced_early() {
    LEAVE.catches(Broken::AckBeforeCr3, STALE);
}

#[test]
fn leave_with_an_nmi() {
    LEAVE_WITH_NMI.is_clean();
}

#[test]
fn leave_with_an_nmi_and_the_new_space_announced_early() {
    LEAVE_WITH_NMI.catches(Broken::AckBeforeCr3, STALE);
}

/// CPU 1 goes to another space, whose generation is far ahead, and comes back. A waiter that sees parts of either must
/// not take one space's generation for the other's.
const HOP: Scenario = Scenario::bounded(
    || {
        let machine = boot(2, config());
        on(1, || {
            machine.switch(machine.a());
            machine.access(Page::X);
        });
        for _ in 0..3 {
            machine.tlb.flush(machine.b(), Request::all()).wait();
        }
        machine.set_before(Before::Speculation);
        let cpu1 = start(1, || {
            machine.switch(machine.b());
            machine.switch(machine.a());
            machine.access(Page::X);
            machine.unload();
        });
        machine.unmap(Page::X);
        cpu1.join().unwrap();
    },
    4,
);

#[test]
fn hop() {
    HOP.is_clean();
}

#[test]
fn hop_with_the_new_space_announced_early() {
    HOP.catches(Broken::AckBeforeCr3, STALE);
}

#[test]
fn hop_without_the_barrier_of_the_switch() {
    HOP.catches(Broken::NoSwitchBarrier, STALE);
}

#[test]
fn hop_with_switching_taken_for_done() {
    HOP.catches(Broken::SwitchingDone, STALE);
}
