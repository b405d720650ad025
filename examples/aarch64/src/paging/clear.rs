//! Taking a range out of the tables, with the tables that are empty then.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use super::entry::{OUTPUT_ADDRESS, next_table, take_leaf};
use super::level::Level;
use crate::frames::{Frame, Size};

/// Clears what `table` at `level` maps in `range`, which lies inside what the table translates.
///
/// # Panics
/// When an end of `range` is not an end of a leaf.
pub(super) fn clear(table: &Frame, level: Level, range: &Range<u64>, freed: &mut dyn FnMut(Frame)) {
    let step = level.bytes();
    let mut va = range.start;
    while va < range.end {
        let entry = level.entry(table.words(), va);
        let part = va..range.end.min((va & !(step - 1)) + step);
        if level != Level::PAGES && next_table(entry.load(Ordering::Relaxed)).is_some() {
            clear_below(entry, level.next(), &part, freed);
        } else if let Some(frame) = level.leaf().and_then(|size| take_leaf(entry, size)) {
            assert!(
                va.is_multiple_of(step) && part.end == va + step,
                "{range:#x?} cuts through the leaf at {va:#x}"
            );
            freed(frame);
        }
        va = part.end;
    }
}

/// Clears the table that `entry` points to, and takes it out too if nothing is left in it.
fn clear_below(entry: &AtomicU64, level: Level, range: &Range<u64>, freed: &mut dyn FnMut(Frame)) {
    let address = entry.load(Ordering::Relaxed) & OUTPUT_ADDRESS;
    // SAFETY: entries above the last level point to table frames that they own. The ownership is here until it goes
    // back into the entry, or the entry is cleared.
    let table = unsafe { Frame::from_entry(address, Size::Page) };
    clear(&table, level, range, freed);
    let is_empty = |word: &AtomicU64| word.load(Ordering::Relaxed) == 0;
    if table.words().iter().all(is_empty) {
        entry.store(0, Ordering::Release);
        freed(table);
    } else {
        table.into_entry();
    }
}
