//! Table entries: their bits, and what they own.

use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_paging::descriptor::El1Attributes as Attributes;

use crate::frames::{Frame, Size, words};

pub(super) const OUTPUT_ADDRESS: u64 = ((1 << 48) - 1) & !0xfff;

pub(super) const TABLE: u64 = (Attributes::VALID.bits() | Attributes::TABLE_OR_PAGE.bits()) as u64;
pub(super) const DATA: u64 = (Attributes::VALID.bits()
    | Attributes::ACCESSED.bits()
    | Attributes::INNER_SHAREABLE.bits()
    | Attributes::ATTRIBUTE_INDEX_1.bits()
    | Attributes::PXN.bits()
    | Attributes::UXN.bits()) as u64;
pub(super) const NON_GLOBAL: u64 = Attributes::NON_GLOBAL.bits() as u64;
pub(super) const READ_ONLY: u64 = Attributes::READ_ONLY.bits() as u64;
pub(super) const VALID: u64 = Attributes::VALID.bits() as u64;
pub(super) const PAGE_OR_TABLE: u64 = Attributes::TABLE_OR_PAGE.bits() as u64;

/// The table that an entry above level 3 points to.
pub(super) fn next_table(entry: u64) -> Option<&'static [AtomicU64]> {
    (entry & TABLE == TABLE).then(|| words(entry & OUTPUT_ADDRESS, Size::Page))
}

pub(super) fn is_leaf(entry: &AtomicU64, size: Size) -> bool {
    let kind = match size {
        Size::Page => VALID | PAGE_OR_TABLE,
        Size::Block => VALID,
    };
    entry.load(Ordering::Relaxed) & (VALID | PAGE_OR_TABLE) == kind
}

pub(super) fn take_leaf(entry: &AtomicU64, size: Size) -> Option<Frame> {
    if !is_leaf(entry, size) {
        return None;
    }
    let old = entry.swap(0, Ordering::AcqRel);
    // SAFETY: the entry was made by `map` out of a frame of this size, and has just lost it.
    Some(unsafe { Frame::from_entry(old & OUTPUT_ADDRESS, size) })
}
