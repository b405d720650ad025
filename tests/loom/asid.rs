//! arm64: a switch, which takes the allocator's fast path, against a rollover.

use std::mem::ManuallyDrop;

use shootdown::{Space, TlbFlusher, aarch64::policy::AlwaysBroadcast, variant::Broken};

use crate::{
    arm_cpu::{ALIAS, Flusher, boot, compare, flusher, flusher_near_the_end, run, switch},
    explore::{Scenario, unless_refused},
    machine::{on, start},
};

/// Three more than there are ASIDs for spaces.
const SPACES: usize = 7;

struct Machine {
    tlb: Flusher<AlwaysBroadcast>,
    spaces: [ManuallyDrop<Space>; SPACES],
}

impl Machine {
    fn new(tlb: Flusher<AlwaysBroadcast>) -> Self {
        let spaces = std::array::from_fn(|number| {
            ManuallyDrop::new(tlb.space(0x20_0000 + ((number as u64) << 16)).unwrap())
        });
        Self { tlb, spaces }
    }

    fn load(&self, space: usize) {
        switch(&self.tlb, &self.spaces[space]);
        run();
    }

    /// All ASIDs are given away: 1 to space 1, 2 to space 0. CPU 0 ran the last one, and both CPUs have entries of the first.
    fn exhaust(&'static self) {
        boot(&self.tlb, 2);
        on(1, || {
            self.load(1);
            self.load(0);
        });
        for space in [1, 2, 3] {
            self.load(space);
        }
    }
}

loom::lazy_static! {
    static ref ASIDS: Machine = Machine::new(flusher());
    /// In the last generation.
    static ref LAST: Machine = Machine::new(flusher_near_the_end(0));
    /// In the last but one.
    static ref NEAR: Machine = Machine::new(flusher_near_the_end(1));
}

fn load(space: usize) {
    ASIDS.load(space);
}

/// CPU 0 goes on to space 1, whose ASID is valid, while CPU 1 needs one that there is not.
fn switch_and_rollover() {
    ASIDS.exhaust();
    let cpu1 = start(1, || load(4));
    load(1);
    cpu1.join().unwrap();
    compare(0, 1);
}

/// As before, and then the space of CPU 0 moves to CPU 1, and back.
fn rollover_and_move() {
    ASIDS.exhaust();
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

/// Both CPUs need an ASID that there is not, nor will be: each stops there, and goes on with a space that has one.
fn the_end() {
    LAST.exhaust();
    let stop = |space: usize, next: usize| {
        let came = unless_refused(|| LAST.load(space));
        assert!(!came, "{ALIAS}: the last generation was not the last");
        LAST.load(next);
    };
    let cpu1 = start(1, move || stop(4, 0));
    stop(5, 1);
    cpu1.join().unwrap();
    compare(0, 1);
}

/// The rollover into the last generation is like any other; the next one is not made.
fn near_the_end() {
    NEAR.exhaust();
    let cpu1 = start(1, || NEAR.load(4));
    NEAR.load(1);
    cpu1.join().unwrap();
    compare(0, 1);
    let more = [2, 3, 5, 6, 2, 3];
    let loaded = more.map(|space| unless_refused(|| NEAR.load(space)));
    assert!(
        loaded.contains(&false),
        "{ALIAS}: the last generation was not the last"
    );
}

/// As [`the_end`], but goes on after the stop with what has never been loaded.
fn after_the_end() {
    LAST.exhaust();
    let go_on = |spaces: [usize; 2]| {
        for space in spaces {
            unless_refused(|| LAST.load(space));
        }
    };
    let cpu1 = start(1, move || go_on([4, 5]));
    go_on([1, 6]);
    cpu1.join().unwrap();
}

const ROLLOVER: Scenario = Scenario::full(switch_and_rollover);
const MOVE: Scenario = Scenario::bounded(rollover_and_move, 3);
const END: Scenario = Scenario::full(the_end);
const NEAR_END: Scenario = Scenario::full(near_the_end);
const AFTER_END: Scenario = Scenario::full(after_the_end);

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

#[test]
fn the_last_generation_is_the_last() {
    END.is_clean();
    AFTER_END.is_clean();
}

#[test]
fn rollover_into_the_last_generation() {
    NEAR_END.is_clean();
}

#[test]
fn generations_that_begin_anew() {
    AFTER_END.catches(Broken::GenerationsWrap, ALIAS);
}
