//! The end of a space against CPUs that load it or are lazy in it.

use shootdown::{TlbFlusher, variant::Broken};

use crate::{
    cpu::Before,
    explore::{STALE, Scenario, unless_refused},
    machine::{boot, config, on, start},
    page::Page,
};

/// CPU 1 loads the space, of whose mask it may be a member already, while CPU 0 retires it. One of them is refused.
fn load(member: bool, weak: Option<usize>) {
    let machine = boot(2, config());
    if member {
        on(1, || {
            machine.switch(machine.a());
            machine.switch(machine.b());
        });
    }
    if let Some(cpu) = weak {
        machine.weaken(cpu);
    }
    let cpu1 = start(1, || {
        if unless_refused(|| machine.switch(machine.a())) {
            machine.access(Page::X);
            machine.unload();
        }
    });
    if machine.tlb.retire(machine.a()).is_ok() {
        // The frames of its pages, and its tables, go back.
        machine.reuse(Page::X);
    }
    cpu1.join().unwrap();
}

/// CPU 1 comes back.
const COME_BACK: Scenario = Scenario::full(|| load(true, None));

#[test]
fn come_back() {
    COME_BACK.is_clean();
}

#[test]
fn come_back_without_the_barrier_of_the_switch() {
    COME_BACK.catches(Broken::NoSwitchBarrier, STALE);
}

#[test]
fn come_back_without_the_barrier_of_retire() {
    Scenario::full(|| load(true, Some(0))).fails(STALE);
}

#[test]
fn first_visit() {
    Scenario::full(|| load(false, None)).is_clean();
}

#[test]
fn first_visit_without_the_barrier_after_the_mask() {
    Scenario::full(|| load(false, Some(1))).fails(STALE);
}

/// CPU 1 is lazy in the space, and speculates through it, while CPU 0 retires it.
const LAZY: Scenario = Scenario::full(|| {
    let machine = boot(2, config());
    let _outer = on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
        machine.tlb.lazy_enter()
    });
    machine.set_before(Before::Speculation);
    let cpu1 = start(1, || {
        machine.speculate();
        machine.take_interrupt();
        machine.speculate();
        machine.unload();
    });
    machine.tlb.retire(machine.a()).unwrap();
    machine.reuse(Page::X);
    cpu1.join().unwrap();
});

#[test]
fn lazy() {
    LAZY.is_clean();
}

#[test]
fn lazy_and_leaving_taken_for_gone() {
    LAZY.catches(Broken::RetireSwitchingGone, STALE);
}

#[test]
fn lazy_and_kept() {
    LAZY.catches(Broken::RetireLazyKept, STALE);
}
