//! One CPU's TLB: tagged translations and paging-structure-cache entries.

use super::layout;

/// What an entry caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The translation of a 4 KiB page.
    Page,
    /// The translation of a 2 MiB page.
    Large,
    /// A region's table of pages.
    Region,
    /// The table of regions.
    Top,
}

impl Kind {
    pub(crate) const fn is_leaf(self) -> bool {
        matches!(self, Self::Page | Self::Large)
    }

    const fn bytes(self) -> u64 {
        match self {
            Self::Page => layout::entry_bytes(0),
            Self::Large | Self::Region => layout::entry_bytes(1),
            Self::Top => layout::entry_bytes(2),
        }
    }
}

/// A cached translation, or a cached table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// PCID or ASID.
    pub tag: u16,
    /// It serves all tags.
    pub global: bool,
    pub kind: Kind,
    /// The first address.
    pub base: u64,
    /// The frame or table.
    pub frame: u16,
    /// The frame's generation when the entry was made.
    pub generation: u32,
    pub writable: bool,
    /// arm64: other CPUs may use it (CnP).
    pub common: bool,
    /// When the page-table entries it stands for were read: the page's, the region's, the root's. Those that it does
    /// not stand for count as read in the future.
    pub times: [u64; 3],
    /// Ground truth, unknown to hardware: whose table it came from; 0 is the kernel.
    pub scope: u8,
}

impl Entry {
    /// When the first of the page-table entries was read.
    pub(crate) fn oldest(&self) -> u64 {
        self.times.into_iter().fold(u64::MAX, u64::min)
    }

    pub(crate) const fn covers(&self, address: u64) -> bool {
        address & !(self.kind.bytes() - 1) == self.base
    }

    /// The last address that it covers.
    pub(crate) const fn last(&self) -> u64 {
        self.base + (self.kind.bytes() - 1)
    }

    pub(crate) const fn serves(&self, tag: u16) -> bool {
        self.global || self.tag == tag
    }

    /// The first address that an entry of `kind` for `address` has.
    pub(crate) const fn base(kind: Kind, address: u64) -> u64 {
        address & !(kind.bytes() - 1)
    }

    /// The pages it covers, as a mask.
    pub(crate) fn pages(&self) -> u32 {
        layout::pages_between(self.base, self.base + (self.kind.bytes() - 1))
    }

    /// For the trace.
    pub(crate) fn show(&self) -> String {
        let tag = if self.global {
            String::from("global")
        } else {
            format!("tag {}", self.tag)
        };
        let what = match self.kind {
            Kind::Page => "page",
            Kind::Large => "2M page",
            Kind::Region => "table of",
            Kind::Top => "upper table of",
        };
        let right = if self.kind.is_leaf() && !self.writable {
            " read-only"
        } else {
            ""
        };
        format!(
            "{what} {:#x} -> frame {}.{}{right} ({tag})",
            self.base, self.frame, self.generation
        )
    }
}

/// The entry that was read first.
pub(crate) fn oldest<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<Entry> {
    entries.min_by_key(|entry| entry.oldest()).copied()
}

/// A TLB. Nothing is evicted: what hardware may keep, this one keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tlb {
    pub entries: Vec<Entry>,
    /// arm64: translations of instructions already fetched, which an ISB drops.
    pub fetched: Vec<Entry>,
}

impl Tlb {
    /// Drops all entries for which `doomed` holds.
    pub(crate) fn drop_where(&mut self, mut doomed: impl FnMut(&Entry) -> bool) {
        self.entries.retain(|entry| !doomed(entry));
    }
}
