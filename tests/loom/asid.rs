//! arm64: a switch, which takes the allocator's fast path, against a rollover.

use std::mem::ManuallyDrop;

use shootdown::{Space, TlbFlusher, aarch64::policy::AlwaysBroadcast, variant::Broken};

use crate::{
    arm_cpu::{ALIAS, Flusher, boot, compare, flusher, run, switch},
    explore::Scenario,
    machine::{on, start},
};

/// One more than there are ASIDs for spaces.
const SPACES: usize = 5;

struct Machine {
    tlb: Flusher<AlwaysBroadcast>,
    spaces: [ManuallyDrop<Space>; SPACES],
}

loom::lazy_static! {
    static ref ASIDS: Machine = {
        let tlb = flusher();
        let spaces = std::array::from_fn(|number| {
            ManuallyDrop::new(tlb.space(0x20_0000 + ((number as u64) << 16)).unwrap())
        });
        Machine { tlb, spaces }
    };
}

fn load(space: usize) {
    switch(&ASIDS.tlb, &ASIDS.spaces[space]);
    run();
}

/// All ASIDs are given away: 1 to space 1, 2 to space 0. CPU 0 ran the last one, and both CPUs have entries of the first.
fn exhaust() {
    boot(&ASIDS.tlb, 2);
    on(1, || {
        load(1);
        load(0);
    });
    for space in [1, 2, 3] {
        load(space);
    }
}

/// CPU 0 goes on to space 1, whose ASID is valid, while CPU 1 needs one that there is not.
fn switch_and_rollover() {
    exhaust();
    let cpu1 = start(1, || load(4));
    load(1);
    cpu1.join().unwrap();
    compare(0, 1);
}

/// As before, and then the space of CPU 0 moves to CPU 1, and back.
fn rollover_and_move() {
    exhaust();
    let cpu1 = start(1, || {
        load(4);
        load(1);
    });
    load(1);
    cpu1.join().unwrap();
    compare(0, 1);
    on(1, || load(2));
    compare(0, 1);
    load(1);
    load(4);
}

const ROLLOVER: Scenario = Scenario::full(switch_and_rollover);
const MOVE: Scenario = Scenario::bounded(rollover_and_move, 3);

#[test]
fn rollover() {
    ROLLOVER.is_clean();
}

#[test]
fn rollover_that_forgets_what_runs() {
    ROLLOVER.catches(Broken::RolloverForgetsReserved, ALIAS);
}

#[test]
fn rollover_without_the_pending_flush() {
    ROLLOVER.catches(Broken::RolloverNoPendingFlush, ALIAS);
}

#[test]
fn moves() {
    MOVE.is_clean();
}

#[test]
fn moves_without_the_pending_flush() {
    MOVE.catches(Broken::RolloverNoPendingFlush, ALIAS);
}
