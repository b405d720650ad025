//! The mark of a gather against a reader that finds an entry cleared.

use shootdown::{FrameArray, Gather, variant::Broken};

use crate::{
    explore::{STALE, Scenario},
    machine::{boot, config, on, start},
    page::Page,
};

struct Frame;

impl Drop for Frame {
    fn drop(&mut self) {}
}

/// CPU 0 gathers page X, which CPU 1 has in its TLB. CPU 1, in the kernel, meets the cleared entry and relies on the
/// translation being gone, unless a flush is pending.
const MEET: Scenario = Scenario::full(|| {
    let machine = boot(2, config());
    on(1, || {
        machine.switch(machine.a());
        machine.access(Page::X);
    });
    let cpu1 = start(1, move || {
        if machine.is_changed(Page::X) && !machine.a().flush_pending() {
            machine.reuse(Page::X);
            machine.access(Page::X);
        }
        machine.unload();
    });
    let mut gather = Gather::new(&machine.tlb, machine.a(), FrameArray::<Frame, 1>::new());
    machine.change(Page::X);
    gather.unmapped(Page::X.range(), Frame);
    drop(gather.finish());
    cpu1.join().unwrap();
});

#[test]
fn meet_a_cleared_entry() {
    MEET.is_clean();
}

#[test]
fn meet_a_cleared_entry_without_the_mark() {
    MEET.catches(Broken::NoGatherMark, STALE);
}

/// CPU 0, which has page X in its TLB, unmaps it too, finds it cleared by CPU 1 already, and relies on it once its own
/// gather is finished: that one must have flushed what it did not clear.
const OVERLAP: Scenario = Scenario::bounded(
    || {
        let machine = boot(2, config());
        machine.switch(machine.a());
        machine.access(Page::X);
        let cpu1 = start(1, move || {
            let mut gather = Gather::new(&machine.tlb, machine.a(), FrameArray::<Frame, 1>::new());
            machine.change(Page::X);
            gather.unmapped(Page::X.range(), Frame);
            drop(gather.finish());
        });
        let gather = Gather::new(&machine.tlb, machine.a(), FrameArray::<Frame, 1>::new());
        let cleared = machine.is_changed(Page::X);
        drop(gather.finish());
        if cleared {
            machine.reuse(Page::X);
            machine.access(Page::X);
        }
        machine.unload();
        cpu1.join().unwrap();
    },
    4,
);

#[test]
fn overlap() {
    OVERLAP.is_clean();
}

#[test]
fn overlap_without_the_mark() {
    OVERLAP.catches(Broken::NoGatherMark, STALE);
}
