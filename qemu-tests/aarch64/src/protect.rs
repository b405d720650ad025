//! Write protection of a leaf that is in use.

use shootdown::aarch64::skip_invalidations;
use shootdown::{Needed, Range, Request, Stride};
use shootdown_examples_aarch64::frames::{Frame, Size};
use shootdown_examples_aarch64::paging::{Access, Tables, WINDOW};
use shootdown_examples_aarch64::probe;

use crate::attempt::{Attempt, attempts};
use crate::backend::Backend;
use crate::case::{load, unload_everywhere};
use crate::rig::Rig;

/// CPU 0 protects a leaf that CPU `writer` writes to. Until the flush the writes go through, afterwards they fault.
///
/// # Panics
/// When a write does something else.
pub fn write_faults_after_the_flush<B: Backend>(size: Size, writer: usize) {
    run::<B>(size, writer, false);
}

/// The counter-test: with the invalidation instruction left out, writes go through after the flush too.
///
/// # Panics
/// When a write does something else.
pub fn write_is_stale_without_the_instruction<B: Backend>(size: Size, writer: usize) {
    run::<B>(size, writer, true);
}

fn run<B: Backend>(size: Size, writer: usize, without_instruction: bool) {
    let rig = Rig::start::<B>();
    attempts(|place| attempt::<B>(&rig, size, writer, place, without_instruction));
}

fn attempt<B: Backend>(
    rig: &Rig,
    size: Size,
    writer: usize,
    place: u64,
    without_instruction: bool,
) -> Attempt {
    let va = WINDOW.start + place * size.bytes();
    let stride = match size {
        Size::Page => Stride::Size4K,
        Size::Block => Stride::Size2M,
    };
    let range = Range::new(B::TLB.paging(), va, 1, stride).expect("the window is aligned");
    let mut tables = Tables::of_space().expect("the pool is full at start");
    let space = B::TLB.space(tables.root()).expect("there are few spaces");
    let frame = Frame::data(size).expect("the pool is full at start");
    tables
        .map(va, frame, Access::ReadWrite)
        .expect("the window is empty");
    B::TLB.mapped(&range);
    let write = |value| rig.on(writer, || probe::write(va, value));
    rig.on(writer, || load::<B>(&space));
    assert_eq!(write(1), Ok(()));

    let (old, new) = tables
        .protect(va, size, Access::ReadOnly)
        .expect("it is mapped");
    assert_eq!(B::needs_flush(old, new), Needed::All);
    let unflushed = write(2);
    skip_invalidations(without_instruction);
    B::TLB
        .flush(&space, Request::range(range).uniform_level())
        .wait();
    let flushed = write(3);
    skip_invalidations(false);
    if !without_instruction {
        flushed.expect_err("the flush is complete, and yet the page is writable");
        assert!(
            rig.on(writer, || probe::read(va)).is_ok(),
            "it is still readable"
        );
    }

    let (old, new) = tables
        .protect(va, size, Access::ReadWrite)
        .expect("it is mapped");
    assert_ne!(
        B::needs_flush(old, new),
        Needed::All,
        "no CPU has more than the new entry allows"
    );
    unload_everywhere::<B>(rig);
    B::TLB.retire(&space).expect("no CPU has it loaded");
    Attempt::conclusive_if(unflushed.is_ok() && flushed.is_ok() == without_instruction)
}
