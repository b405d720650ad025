//! What the tests map: frames that say which they are, ranges, spaces.

use shootdown::{Range, Space, Stride};
use spin::Mutex;
use x86_kernel::{frames::Frame, paging::Tables};

use crate::Backend;

/// A data frame whose first word says which it is.
///
/// # Panics
/// When no frame is left.
pub fn frame(value: u64) -> Frame {
    let frame = Frame::data().expect("frames are left");
    frame.store(0, value);
    frame
}

/// As [`frame`], of 2 MiB.
///
/// # Panics
/// When no frame is left.
pub fn large_frame(value: u64) -> Frame {
    let frame = Frame::large().expect("frames are left");
    frame.store(0, value);
    frame
}

/// A range of the window.
///
/// # Panics
/// When there is no such range.
pub fn range<B: Backend>(tlb: &B, va: u64, pages: u64, stride: Stride) -> Range {
    Range::new(tlb.paging(), va, pages, stride).expect("the range is good")
}

/// Tables, and their space.
///
/// # Panics
/// When frames run out.
pub fn new_space<B: Backend>(tlb: &B) -> (Mutex<Tables>, Space) {
    let tables = Tables::new().expect("frames are left");
    let space = tlb.space(tables.root()).expect("the root is a table");
    tlb.prepare(&space);
    (Mutex::new(tables), space)
}
