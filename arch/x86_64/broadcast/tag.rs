//! What stands in a space's tag.

/// ```text
/// 18 kept local · 17 retired · 16 in transition · 11:0 the global PCID, 0 if there is none
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Tag(pub(in super::super) u64);

const TRANSITION: u64 = 1 << 16;

impl Tag {
    pub(super) const NONE: Self = Self(0);
    /// The space has retired and given its PCID back; a promotion that comes late finds that there is nothing to do.
    pub(super) const RETIRED: Self = Self(1 << 17);

    /// The space never gets a PCID.
    pub(super) const KEPT_LOCAL: Self = Self(1 << 18);

    /// CPUs begin to use `pcid`; some still use their own.
    pub(super) const fn in_transition(pcid: u16) -> Self {
        Self(TRANSITION | pcid as u64)
    }

    /// All CPUs that run the space use `pcid`.
    pub(super) const fn settled(pcid: u16) -> Self {
        Self(pcid as u64)
    }

    /// The global PCID, if there is one.
    #[inline(always)]
    pub(in super::super) const fn pcid(self) -> Option<u16> {
        match self.0 as u16 {
            0 => None,
            pcid => Some(pcid),
        }
    }

    /// The global PCID, if no CPU uses another one for the space.
    #[inline(always)]
    pub(super) const fn settled_pcid(self) -> Option<u16> {
        if self.0 & TRANSITION == 0 {
            self.pcid()
        } else {
            None
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_what_cpus_may_use() {
        let pcids = |tag: Tag| (tag.pcid(), tag.settled_pcid());
        assert_eq!(pcids(Tag::NONE), (None, None));
        assert_eq!(pcids(Tag::in_transition(9)), (Some(9), None));
        assert_eq!(pcids(Tag::settled(9)), (Some(9), Some(9)));
        assert_eq!(pcids(Tag::RETIRED), (None, None));
        assert_eq!(pcids(Tag::KEPT_LOCAL), (None, None));
    }
}
