//! Trim requests, posted and answered, against flushes and against the end of the space.

use shootdown::{TlbFlusher, variant::Broken};

use crate::{
    explore::{FOREVER, REUSED, STALE, Scenario, unless_refused},
    machine::{Machine, boot, config, on, start},
    page::Page,
};

/// CPU 1 has left space A, of whose mask it is still a member; whoever flushes A asks it to leave.
fn prepare() -> &'static Machine {
    let machine = boot(2, config().trim_after(0));
    on(1, || {
        machine.switch(machine.a());
        machine.switch(machine.b());
    });
    machine
}

/// CPU 1 comes back to the space, serves, and stays. The first flush finds it away and asks it to leave the mask; the
/// second one must still find it.
const COME_BACK: Scenario = Scenario::bounded(
    || {
        let machine = prepare();
        let cpu1 = start(1, || {
            machine.switch(machine.a());
            machine.access(Page::X);
            machine.serve();
            machine.access(Page::X);
            machine.unload();
        });
        machine.tlb.flush(machine.a(), Page::Y.request()).wait();
        machine.unmap(Page::X);
        cpu1.join().unwrap();
    },
    3,
);

#[test]
fn come_back() {
    COME_BACK.is_clean();
}

#[test]
fn come_back_and_be_trimmed() {
    COME_BACK.catches(Broken::TrimLoaded, STALE);
}

/// CPU 0 asks CPU 1 to leave the mask of a space and retires it at once. Whoever gets the memory next must not be hit by
/// a late answer.
const RETIRE: Scenario = Scenario::full(|| {
    let machine = prepare();
    let cpu1 = start(1, || machine.serve());
    machine.tlb.flush(machine.a(), Page::X.request()).wait();
    machine.tlb.retire(machine.a()).unwrap();
    machine.replace_a();
    cpu1.join().unwrap();
    machine.tlb.retire(machine.a()).unwrap();
});

#[test]
fn retire() {
    RETIRE.is_clean();
}

#[test]
fn retire_with_the_request_kept() {
    RETIRE.catches(Broken::RetireTrimKept, REUSED);
}

/// CPU 1 answers a request just when CPU 0 is about to post another one, and idles then. `retire` must not wait for it.
const RETIRE_IDLE: Scenario = Scenario::full(|| {
    let machine = prepare();
    let cpu1 = start(1, || machine.serve());
    for _ in 0..2 {
        machine.tlb.flush(machine.a(), Page::X.request()).wait();
    }
    machine.tlb.retire(machine.a()).unwrap();
    cpu1.join().unwrap();
});

#[test]
fn retire_while_idle() {
    RETIRE_IDLE.is_clean();
}

/// CPU 0 retires the space while CPU 2 is in the middle of a flush of it.
const RETIRE_DURING_FLUSH: Scenario = Scenario::full(|| {
    let machine = prepare();
    on(2, || machine.tlb.online().unwrap());
    let cpu2 = start(2, || {
        unless_refused(|| {
            machine.post(Page::X.request());
        });
    });
    machine.tlb.retire(machine.a()).unwrap();
    cpu2.join().unwrap();
    machine.replace_a();
    on(1, || machine.serve());
    machine.tlb.retire(machine.a()).unwrap();
});

#[test]
fn retire_during_a_flush() {
    RETIRE_DURING_FLUSH.is_clean();
}

#[test]
fn retire_during_a_flush_that_posts_late() {
    RETIRE_DURING_FLUSH.catches(Broken::TrimPostedLate, FOREVER);
}
