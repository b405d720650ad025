//! The mark of a gather against a reader that finds an entry cleared.

use loom::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use shootdown::{FrameArray, Gather, variant::Broken};

use crate::{
    explore::{STALE, Scenario},
    machine::{Page, boot, config, on, start},
};

struct Frame;

impl Drop for Frame {
    fn drop(&mut self) {}
}

/// CPU 0 gathers page X, which CPU 1 has in its TLB. CPU 1, in the kernel, meets the cleared entry and relies on the
/// translation being gone, unless a flush is pending.
fn meet(store: Ordering, load: Ordering) {
    let machine = boot(2, config());
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
    });
    let cpu1 = start(1, move || {
        if machine.is_changed(Page::X, load) && !machine.a().flush_pending() {
            machine.reuse(Page::X);
            machine.access(Page::X);
        }
        machine.unload();
    });
    let mut gather = Gather::new(&machine.tlb, machine.a(), FrameArray::<Frame, 1>::new());
    machine.change_with(Page::X, store);
    gather.unmapped(Page::X.range(), Frame);
    drop(gather.finish());
    cpu1.join().unwrap();
}

const MEET: Scenario = Scenario::full(|| meet(Release, Acquire));

#[test]
fn meet_a_cleared_entry() {
    MEET.is_clean();
}

#[test]
fn meet_a_cleared_entry_without_the_mark() {
    MEET.catches(Broken::NoGatherMark, STALE);
}

/// The mark does not order the entry by itself: it must be stored with release and read with acquire, as x86 does with
/// every access.
#[test]
fn meet_a_cleared_entry_out_of_order() {
    Scenario::full(|| meet(Relaxed, Relaxed)).fails(STALE);
}
