//! Ground truth of one scope: when each translation changed, and up to when its changes are closed.

use super::super::layout::{PAGES, REGIONS};

/// Dates of one page's translation, by the level of the page-table entry: the page's, the region's, the root's.
pub(super) type Dates = [u64; 3];

/// The dates of one scope: the kernel's mappings, or a space.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    /// When walkers last saw a change of each page's translation.
    pub(super) pages: [Dates; PAGES as usize],
    /// When they saw each region's table unlinked, and the table of regions.
    pub(super) tables: [u64; REGIONS as usize],
    pub(super) top: u64,
    /// Up to when changes of each page are closed for use.
    pub(super) closed: [Dates; PAGES as usize],
    /// Up to when they are closed for speculation too.
    pub(super) closed_hard: [Dates; PAGES as usize],
    /// As far as no earlier flush has closed them for use: an older entry that is not loaded may be left by that one.
    pub(super) closed_first: [Dates; PAGES as usize],
    pub(super) closed_tables: [u64; REGIONS as usize],
    pub(super) closed_top: u64,
}

impl Truth {
    pub(super) const NEW: Self = Self {
        pages: [[0; 3]; PAGES as usize],
        tables: [0; REGIONS as usize],
        top: 0,
        closed: [[0; 3]; PAGES as usize],
        closed_hard: [[0; 3]; PAGES as usize],
        closed_first: [[0; 3]; PAGES as usize],
        closed_tables: [0; REGIONS as usize],
        closed_top: 0,
    };
}

pub(super) fn later(dates: &Dates, others: &Dates) -> Dates {
    core::array::from_fn(|level| dates[level].max(others[level]))
}

pub(super) fn is_older(entry: &Dates, change: &Dates) -> bool {
    entry
        .iter()
        .zip(change)
        .any(|(entry, change)| entry < change)
}
