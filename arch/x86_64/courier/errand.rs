//! [`Errand`]: what a flush is about, for a courier that hands it to a hypervisor.

use crate::{
    range::Range,
    request::{ChangeFlags, Request},
};

/// What a flush is about. Several requests that are dispatched together are one errand, wide enough for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errand {
    /// `None` before anything was added.
    scope: Option<ErrandScope>,
    /// `None` is everything of the scope.
    range: Option<Range>,
    flags: ChangeFlags,
    /// For a broken variant: the generation that was announced last.
    #[cfg(any(loom, feature = "_sim"))]
    pub(in crate::x86_64) generation: u64,
}

/// Whose translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ErrandScope {
    /// Those of one space.
    Space {
        /// The physical address of its root table.
        root: u64,
    },
    /// Those of several spaces: all that are not global, of all spaces.
    Spaces,
    /// The kernel's: of all spaces, global ones included.
    Kernel,
}

impl Errand {
    /// Nothing yet.
    pub(in crate::x86_64) const NOTHING: Self = Self {
        scope: None,
        range: None,
        flags: ChangeFlags::empty(),
        #[cfg(any(loom, feature = "_sim"))]
        generation: 0,
    };

    /// An errand for one request: for tests of couriers.
    pub const fn new(scope: ErrandScope, request: Request) -> Self {
        let mut errand = Self::NOTHING;
        errand.scope = Some(scope);
        errand.flags = request.flags();
        errand.range = match request.span() {
            Some(range) => Some(*range),
            None => None,
        };
        errand
    }

    /// Whose translations must go.
    pub fn scope(&self) -> ErrandScope {
        // Never asked for an empty errand; the widest is never wrong.
        self.scope.unwrap_or(ErrandScope::Kernel)
    }

    /// Which of them; `None` is all. A range has at most as many pages as the configured
    /// [ceiling](crate::x86_64::Config::ceiling).
    pub const fn range(&self) -> Option<&Range> {
        self.range.as_ref()
    }

    /// What changed besides leaf entries.
    pub const fn flags(&self) -> ChangeFlags {
        self.flags
    }

    /// Whether CPUs that do not use the space at the moment must be reached as well, see
    /// [`Request::reaches_lazy`]. Always so for the kernel.
    pub fn reaches_lazy(&self) -> bool {
        self.flags
            .intersects(ChangeFlags::TABLES_FREED.union(ChangeFlags::ATTRIBUTES_CHANGED))
            || self.scope() == ErrandScope::Kernel
    }

    /// Adds a request, of which `range` is to be dropped, or everything.
    pub(in crate::x86_64) fn add(
        &mut self,
        scope: ErrandScope,
        range: Option<Range>,
        flags: ChangeFlags,
    ) {
        let first = self.scope.is_none();
        self.scope = Some(match self.scope {
            None => scope,
            Some(known) => known.with(scope),
        });
        // Two ranges are not one, and a batch is mostly many.
        self.range = range.filter(|_| first);
        self.flags |= flags;
    }
}

impl ErrandScope {
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Kernel, _) | (_, Self::Kernel) => Self::Kernel,
            (a, b) if a == b => a,
            _ => Self::Spaces,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::paging::{Paging, Stride};

    const A: ErrandScope = ErrandScope::Space { root: 0xa000 };
    const B: ErrandScope = ErrandScope::Space { root: 0xb000 };

    fn errand(parts: &[(ErrandScope, Option<Range>, ChangeFlags)]) -> Errand {
        let mut errand = Errand::NOTHING;
        for (scope, range, flags) in parts {
            errand.add(*scope, *range, *flags);
        }
        errand
    }

    #[test]
    fn requests_widen_an_errand() {
        let none = ChangeFlags::empty();
        let range = Range::new(Paging::X86_4_LEVEL, 0x5000, 2, Stride::Size4K).unwrap();
        let one = errand(&[(A, Some(range), none)]);
        assert_eq!((one.scope(), one.range()), (A, Some(&range)));
        assert!(!one.reaches_lazy());
        let same = errand(&[(A, Some(range), none), (A, Some(range), none)]);
        assert_eq!((same.scope(), same.range()), (A, None));
        let two = errand(&[(A, Some(range), none), (B, None, ChangeFlags::TABLES_FREED)]);
        assert_eq!((two.scope(), two.range()), (ErrandScope::Spaces, None));
        assert!(two.reaches_lazy());
        let three = errand(&[(A, None, none), (B, None, none), (A, Some(range), none)]);
        assert_eq!((three.scope(), three.range()), (ErrandScope::Spaces, None));
        let kernel = errand(&[(A, None, none), (ErrandScope::Kernel, Some(range), none)]);
        assert_eq!(
            (kernel.scope(), kernel.range()),
            (ErrandScope::Kernel, None)
        );
        assert!(kernel.reaches_lazy());
        let only = errand(&[(ErrandScope::Kernel, Some(range), none)]);
        assert_eq!(only.range(), Some(&range));
    }
}
