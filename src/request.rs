//! What a flush is asked to do.

use crate::range::Range;

bitflags::bitflags! {
    /// What changed besides leaf entries.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ChangeFlags: u8 {
        /// A page-table page was unlinked: paging-structure caches must go too, and no CPU is skipped for being
        /// lazy or waiting, since hardware may walk the freed table speculatively.
        const TABLES_FREED = 1 << 0;
        /// The memory type, encryption or owner (another trust domain) of a frame changed: no CPU may use an old
        /// entry even speculatively, so none is skipped.
        const ATTRIBUTES_CHANGED = 1 << 1;
        /// Every entry of the range was a leaf of the stride's size, so that its level may be given to the hardware
        /// as a hint (arm64 TTL).
        const UNIFORM_LEVEL = 1 << 2;
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for ChangeFlags {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "ChangeFlags({=u8:b})", self.bits());
    }
}

/// A flush: a range, or everything of its scope, and what changed.
///
/// ```
/// use shootdown::{Paging, Range, Request, Stride};
///
/// let range = Range::new(Paging::X86_4_LEVEL, 0x20_0000, 1, Stride::Size2M)?;
/// let unmapped = Request::range(range);
/// let split = Request::range(range).tables_freed();
/// let exit = Request::all().tables_freed();
/// assert!(exit.reaches_lazy() && split.reaches_lazy() && !unmapped.reaches_lazy());
/// # Ok::<(), shootdown::RangeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "a request does nothing until it is given to `flush`"]
pub struct Request {
    range: Option<Range>,
    flags: ChangeFlags,
}

impl Request {
    /// Flushes `range`.
    pub const fn range(range: Range) -> Self {
        Self {
            range: Some(range),
            flags: ChangeFlags::empty(),
        }
    }

    /// Flushes everything of the scope: of a space, all its entries; of the kernel, everything there is, entries
    /// marked global included.
    pub const fn all() -> Self {
        Self {
            range: None,
            flags: ChangeFlags::empty(),
        }
    }

    /// Says that page-table pages were unlinked, see [`ChangeFlags::TABLES_FREED`].
    pub const fn tables_freed(self) -> Self {
        self.with(ChangeFlags::TABLES_FREED)
    }

    /// Says that memory attributes changed, see [`ChangeFlags::ATTRIBUTES_CHANGED`].
    pub const fn attributes_changed(self) -> Self {
        self.with(ChangeFlags::ATTRIBUTES_CHANGED)
    }

    /// Says that every entry was a leaf of the stride's size, see [`ChangeFlags::UNIFORM_LEVEL`].
    pub const fn uniform_level(self) -> Self {
        self.with(ChangeFlags::UNIFORM_LEVEL)
    }

    /// Adds `flags`.
    pub const fn with(self, flags: ChangeFlags) -> Self {
        Self {
            range: self.range,
            flags: self.flags.union(flags),
        }
    }

    /// The range; `None` is everything.
    pub const fn span(&self) -> Option<&Range> {
        self.range.as_ref()
    }

    /// What changed.
    pub const fn flags(&self) -> ChangeFlags {
        self.flags
    }

    /// Whether page tables were freed.
    pub const fn frees_tables(&self) -> bool {
        self.flags.contains(ChangeFlags::TABLES_FREED)
    }

    /// Whether the flush reaches CPUs that don't use the space at the moment (lazy or waiting), as the second half
    /// of the contract asks for freed tables and changed attributes.
    pub const fn reaches_lazy(&self) -> bool {
        self.flags
            .intersects(ChangeFlags::TABLES_FREED.union(ChangeFlags::ATTRIBUTES_CHANGED))
    }
}
