//! Pages of two spaces that run on two CPUs, unmapped by a third CPU and flushed together.

use shootdown::aarch64::skip_invalidations;
use shootdown::{Batch, Request};

use crate::case::{load, unload_everywhere};
use crate::page::SpacePage;
use crate::rig::{Rig, TLB};

/// Neither page can be read after the flush.
///
/// # Panics
/// When one can.
pub fn is_fresh_after_the_flush() {
    assert_eq!(readable_after_a_flush(false), [false, false]);
}

/// The counter-test: with the invalidation instruction left out, both can still be read.
///
/// # Panics
/// When one can't.
pub fn is_stale_without_the_instruction() {
    assert_eq!(readable_after_a_flush(true), [true, true]);
}

fn readable_after_a_flush(without_instruction: bool) -> [bool; 2] {
    let rig = Rig::start();
    let mut pages = [SpacePage::mapped(), SpacePage::mapped()];
    let readable =
        |pages: &[SpacePage; 2]| [1, 2].map(|cpu| rig.on(cpu, || pages[cpu - 1].is_readable()));
    for (cpu, page) in (1..).zip(&pages) {
        rig.on(cpu, || load(&page.space));
    }
    assert_eq!(readable(&pages), [true, true]);

    let frames = pages.each_mut().map(SpacePage::unmap);
    assert_eq!(readable(&pages), [true, true], "both must be stale");
    skip_invalidations(without_instruction);
    let mut batch = Batch::<_, 1, 2>::new(&TLB);
    for page in &pages {
        batch.add(&page.space, Request::range(page.range()));
    }
    batch.flush();
    drop(batch);
    let readable = readable(&pages);
    drop(frames);
    unload_everywhere(&rig);
    pages.iter().for_each(SpacePage::retire);
    readable
}
