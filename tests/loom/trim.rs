//! Trim requests, posted and answered, against flushes and against the end of the space.

use shootdown::{TlbFlusher, variant::Broken};

use crate::{
    explore::{REUSED, STALE, Scenario},
    machine::{Page, boot, config, on, start},
};

/// CPU 1 comes back to the space, serves, and stays. The first flush finds it away and asks it to leave the mask; the
/// second one must still find it.
const COME_BACK: Scenario = Scenario::bounded(
    || {
        let machine = boot(2, config().trim_after(0));
        on(1, || {
            machine.switch(machine.a());
            machine.switch(machine.b());
        });
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

/// CPU 0 asks CPU 1 to leave the mask of a space and retires it at once, or forgets to. Whoever gets the memory next
/// must not be hit by a late answer.
fn retire(first: bool) {
    let machine = boot(2, config().trim_after(0));
    on(1, || {
        machine.switch(machine.a());
        machine.switch(machine.b());
    });
    let cpu1 = start(1, || machine.serve());
    machine.tlb.flush(machine.a(), Page::X.request()).wait();
    if first {
        machine.tlb.retire(machine.a()).unwrap();
    }
    machine.replace_a();
    cpu1.join().unwrap();
    machine.tlb.retire(machine.a()).unwrap();
}

#[test]
fn retire_right_after() {
    Scenario::full(|| retire(true)).is_clean();
}

#[test]
fn reuse_without_retiring() {
    Scenario::full(|| retire(false)).fails(REUSED);
}
