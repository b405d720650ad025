//! Litmus tests of INVLPGB and TLBSYNC.

use std::cell::Cell;
use std::rc::Rc;

use shootdown::x86_64::Instructions;

use super::{Line, PCID, calls, load, store};
use crate::{
    chooser::Chooser,
    machine::{
        Machine,
        current::with,
        physical::{self, LEAF},
        scheduler::{point, relax, run},
        stores::Change,
        x86::X86,
    },
};

/// All but global translations, of ASID 0.
const ALL: u64 = 1 << 2;

fn invlpgb() {
    point();
    with(|m| m.invlpgb(ALL, 0, 0));
}

/// Who waits for the invalidation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Issuer,
    Other,
    Nobody,
}

/// CPU 0 clears a page-table entry and invalidates it, with or without a fence in between. Whether CPU 1 still has the page
/// once somebody has waited.
fn is_left(seed: u64, fence: bool, wait: Wait) -> bool {
    let flag: Rc<Line> = Rc::default();
    let left = Rc::new(Cell::new(false));
    let mut machine = Machine::new(PCID, &[0, 1], Chooser::random(seed, Some([0; 3])), false);
    machine.lines.register(&*flag);
    let memory = &mut machine.memory;
    let (middle, table, frame) = (memory.take(), memory.take(), memory.take());
    let root = physical::frame_of(memory.kernel_root());
    memory.initialize(root, 0, physical::entry(middle, 0));
    memory.initialize(middle, 0, physical::entry(table, 0));
    memory.initialize(table, 0, physical::entry(frame, LEAF));
    for cpu in &mut machine.cpus {
        cpu.listens = true;
    }
    machine.fill(1, 0);
    let (ready, seen) = (Rc::clone(&flag), Rc::clone(&left));
    let is_there = || with(|m| m.translation(1, 0, 0).is_some());
    let issuer: Box<dyn FnOnce()> = Box::new(move || {
        point();
        with(|m| m.store_entry(table, 0, 0, Change::default()));
        if fence {
            X86::publish_before_invlpgb();
        }
        invlpgb();
        match wait {
            Wait::Issuer => X86::tlbsync(),
            Wait::Nobody => {}
            Wait::Other => {
                store(&ready, 1);
                while load(&ready) != 2 {
                    relax();
                }
            }
        }
        seen.set(is_there());
    });
    let other: Box<dyn FnOnce()> = Box::new(move || {
        if wait == Wait::Other {
            while load(&flag) != 1 {
                relax();
            }
            X86::tlbsync();
            store(&flag, 2);
        }
    });
    let machine = run(machine, calls(), vec![issuer, other]);
    assert_eq!(machine.failure, None);
    left.get()
}

fn count(fence: bool, wait: Wait) -> usize {
    (0..400).filter(|seed| is_left(*seed, fence, wait)).count()
}

#[test]
fn tlbsync_waits_for_the_cpus_own_invalidations() {
    assert_eq!(count(true, Wait::Issuer), 0);
    assert!(count(true, Wait::Nobody) > 0);
    assert!(count(true, Wait::Other) > 0);
}

#[test]
fn an_invalidation_overtakes_stores_unless_a_fence_precedes() {
    assert!(count(false, Wait::Issuer) > 0);
}
