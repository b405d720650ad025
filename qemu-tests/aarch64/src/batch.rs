//! Pages of two spaces that run on two CPUs, unmapped by a third CPU and flushed together.

use shootdown::aarch64::skip_invalidations;
use shootdown::{Batch, Request};

use crate::attempt::{Attempt, attempts};
use crate::backend::Backend;
use crate::case::{load, unload_everywhere};
use crate::page::SpacePage;
use crate::rig::Rig;

/// Neither page can be read after the flush.
///
/// # Panics
/// When one can.
pub fn is_fresh_after_the_flush<B: Backend>() {
    run::<B>(false);
}

/// The counter-test: with the invalidation instruction left out, both can still be read.
///
/// # Panics
/// When one can't.
pub fn is_stale_without_the_instruction<B: Backend>() {
    run::<B>(true);
}

fn run<B: Backend>(without_instruction: bool) {
    let rig = Rig::start::<B>();
    attempts(|place| attempt::<B>(&rig, place, without_instruction));
}

fn attempt<B: Backend>(rig: &Rig, place: u64, without_instruction: bool) -> Attempt {
    let mut pages = [SpacePage::<B>::mapped(place), SpacePage::<B>::mapped(place)];
    let readable =
        |pages: &[SpacePage<B>; 2]| [1, 2].map(|cpu| rig.on(cpu, || pages[cpu - 1].is_readable()));
    for (cpu, page) in (1..).zip(&pages) {
        rig.on(cpu, || load::<B>(&page.space));
    }
    assert_eq!(readable(&pages), [true, true]);

    let frames = pages.each_mut().map(SpacePage::unmap);
    let unflushed = readable(&pages);
    skip_invalidations(without_instruction);
    let mut batch = Batch::<_, 1, 2>::new(B::TLB);
    for page in &pages {
        batch.add(&page.space, Request::range(page.range()));
    }
    batch.flush();
    drop(batch);
    let flushed = readable(&pages);
    skip_invalidations(false);
    unload_everywhere::<B>(rig);
    pages.iter().for_each(SpacePage::retire);
    drop(frames);
    if !without_instruction {
        assert_eq!(flushed, [false, false]);
    }
    Attempt::conclusive_if(unflushed == [true, true] && flushed == [without_instruction; 2])
}
