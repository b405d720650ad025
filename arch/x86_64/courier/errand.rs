//! [`Errand`]: what a flush is about, for a courier that hands it to a hypervisor.

use crate::{
    flusher::Scope,
    range::Range,
    request::{ChangeFlags, Request},
};

/// What a flush is about. Requests that are dispatched together, as in a [`Batch`](crate::Batch), are one errand, wide
/// enough for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errand {
    scope: ErrandScope,
    /// `None` is everything of the scope.
    range: Option<Range>,
    flags: ChangeFlags,
    /// For a broken variant.
    generation: u64,
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

/// What makes an errand reach CPUs that do not use the space.
const REACHES_LAZY: ChangeFlags = ChangeFlags::TABLES_FREED.union(ChangeFlags::ATTRIBUTES_CHANGED);

impl Errand {
    /// An errand for one request: for tests of couriers.
    pub const fn new(scope: ErrandScope, request: Request) -> Self {
        Self {
            scope,
            range: match request.span() {
                Some(range) => Some(*range),
                None => None,
            },
            flags: request.flags(),
            generation: 0,
        }
    }

    /// One request, of which everything is dropped if `whole`.
    #[inline]
    pub(in crate::x86_64) fn of_one<const W: usize>(
        scope: Scope<'_, W>,
        request: &Request,
        whole: bool,
        generation: u64,
    ) -> Self {
        Self {
            scope: match scope {
                Scope::Space(space) => ErrandScope::Space { root: space.root },
                Scope::Kernel => ErrandScope::Kernel,
            },
            range: request.span().filter(|_| !whole).copied(),
            flags: request.flags(),
            generation,
        }
    }

    /// Several requests, of which nothing else is known any more.
    pub(in crate::x86_64) const fn of_many(kernel: bool, reaches_lazy: bool) -> Self {
        Self {
            scope: if kernel {
                ErrandScope::Kernel
            } else {
                ErrandScope::Spaces
            },
            range: None,
            flags: if reaches_lazy {
                REACHES_LAZY
            } else {
                ChangeFlags::empty()
            },
            generation: 0,
        }
    }

    /// The generation that was announced.
    pub(in crate::x86_64) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whose translations must go.
    pub const fn scope(&self) -> ErrandScope {
        self.scope
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
    pub const fn reaches_lazy(&self) -> bool {
        self.flags.intersects(REACHES_LAZY) || matches!(self.scope, ErrandScope::Kernel)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{
        paging::{Paging, Stride},
        space::Space,
    };

    #[test]
    fn one_request() {
        let space = Space::<1>::new(0xa000);
        let range = Range::new(Paging::X86_4_LEVEL, 0x5000, 2, Stride::Size4K).unwrap();
        let request = Request::range(range);
        let root = ErrandScope::Space { root: 0xa000 };
        let errand = Errand::of_one(Scope::Space(&space), &request, false, 7);
        assert_eq!((errand.scope(), errand.range()), (root, Some(&range)));
        assert!(!errand.reaches_lazy());
        let whole = Errand::of_one(Scope::Space(&space), &request.tables_freed(), true, 7);
        assert_eq!((whole.scope(), whole.range()), (root, None));
        assert!(whole.reaches_lazy() && whole.flags() == ChangeFlags::TABLES_FREED);
        let kernel = Errand::of_one::<1>(Scope::Kernel, &request, false, 7);
        assert_eq!(
            (kernel.scope(), kernel.range()),
            (ErrandScope::Kernel, Some(&range))
        );
        assert!(kernel.reaches_lazy());
    }

    #[test]
    fn many_requests() {
        let plain = Errand::of_many(false, false);
        assert_eq!((plain.scope(), plain.range()), (ErrandScope::Spaces, None));
        assert!(!plain.reaches_lazy());
        let tables = Errand::of_many(false, true);
        assert!(tables.reaches_lazy() && tables.flags().contains(ChangeFlags::TABLES_FREED));
        assert_eq!(Errand::of_many(true, false).scope(), ErrandScope::Kernel);
    }
}
