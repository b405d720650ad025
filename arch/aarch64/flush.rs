//! Flushes: invalidations, many of them under one DSB.

use super::{
    Instructions, Tlb, Tlbi,
    operand::{by_address, by_asid},
    policy::{Policy, Where, place},
    range::{MAX_RANGE_PAGES, Plan, Step, by_range, leaf_level, level_hint},
    tlb::retired,
};
use crate::{
    atomic::Ordering::Acquire,
    coverage::{Branch, took},
    flusher::Scope,
    platform::{IrqsOff, Platform},
    range::Range,
    request::{ChangeFlags, Request},
    slot::Loaded,
    space::Space,
    variant::{Broken, broken},
};

/// Without range operations, ranges of this many pages and more are flushed as a whole: each operation is a message to every
/// CPU, and Linux found the page count of one table to be a fair bound (`MAX_DVM_OPS`,
/// arch/arm64/include/asm/tlbflush.h). With them the bound is [`MAX_RANGE_PAGES`].
pub const MAX_TLBI_OPERATIONS: u64 = 512;

/// What a flush must still do to complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reach {
    /// Kernel translations: this CPU may have fetched instructions through them.
    kernel: bool,
    /// Invalidations were broadcast.
    everywhere: bool,
    /// Invalidations were issued to this CPU.
    here: bool,
}

/// The operations of one scope and place: by address, by range, and for everything.
#[derive(Clone, Copy)]
struct Operations {
    address: Tlbi,
    range: Tlbi,
    all: Tlbi,
}

impl Operations {
    const fn of_space(leaf: bool, here: bool) -> Self {
        match (leaf, here) {
            (true, false) => Self::new(Tlbi::Vale1Is, Tlbi::Rvale1Is, Tlbi::Aside1Is),
            (false, false) => Self::new(Tlbi::Vae1Is, Tlbi::Rvae1Is, Tlbi::Aside1Is),
            (true, true) => Self::new(Tlbi::Vale1, Tlbi::Rvale1, Tlbi::Aside1),
            (false, true) => Self::new(Tlbi::Vae1, Tlbi::Rvae1, Tlbi::Aside1),
        }
    }

    const fn of_kernel(leaf: bool) -> Self {
        if leaf {
            Self::new(Tlbi::Vaale1Is, Tlbi::Rvaale1Is, Tlbi::Vmalle1Is)
        } else {
            Self::new(Tlbi::Vaae1Is, Tlbi::Rvaae1Is, Tlbi::Vmalle1Is)
        }
    }

    const fn new(address: Tlbi, range: Tlbi, all: Tlbi) -> Self {
        Self {
            address,
            range,
            all,
        }
    }
}

impl<P: Platform, M: Policy, I: Instructions, const W: usize, const A: usize> Tlb<P, M, I, W, A> {
    /// Issues the invalidations. The caller is pinned until [`synchronize`](Self::synchronize): a DSB completes
    /// only what its own CPU has issued (invariant 11), and where the flush may stay here is decided here.
    #[inline]
    pub(super) fn issue(&self, scope: Scope<'_, W>, request: &Request, reach: &mut Reach) {
        let (my, me, loaded) = self.my_slot("flush");
        let leaf = !request.frees_tables() || broken(Broken::TlbiLeafForTable);
        let early = match scope {
            Scope::Space(space) if broken(Broken::AsidReadEarly) => Some(space.tag()),
            _ => None,
        };
        let (place, asid, operations) = match scope {
            Scope::Space(space) => {
                if space.is_retired() {
                    retired(space.id());
                }
                let here = loaded == Loaded::used(space.id);
                let place = self.place(space, me, here, request);
                // Read after the barrier: if a rollover gives the space another ASID meanwhile, whoever loads it under that
                // walks the tables as they are now (Linux 5e10f9887ed8).
                let asid = early.unwrap_or_else(|| self.asid(space));
                (
                    place,
                    asid,
                    Operations::of_space(leaf, place == Where::Here),
                )
            }
            Scope::Kernel => {
                Self::publish_stores();
                (Where::Everywhere, 0, Operations::of_kernel(leaf))
            }
        };
        let kernel = matches!(scope, Scope::Kernel);
        let span = request.span().filter(|range| self.fits(range));
        let issued = match place {
            Where::Nowhere => {
                took(Branch::TlbiElided);
                0
            }
            _ => match span {
                Some(range) => {
                    took(match (kernel, leaf) {
                        (true, _) => Branch::TlbiKernel,
                        (false, true) => Branch::TlbiLeaf,
                        (false, false) => Branch::TlbiTable,
                    });
                    self.by_pages(operations, asid, range, request)
                }
                None => {
                    took(if kernel {
                        Branch::TlbiAll
                    } else {
                        Branch::TlbiAsid
                    });
                    self.tlbi(operations.all, by_asid(asid));
                    1
                }
            },
        };
        if place == Where::Here {
            took(Branch::TlbiLocal);
        }
        reach.kernel |= kernel;
        reach.everywhere |= place == Where::Everywhere;
        reach.here |= place == Where::Here;

        let _irqs = IrqsOff::<P>::new();
        let counters = &my.counters;
        counters.flushes.add(1);
        counters.full.add(u64::from(span.is_none()));
        counters.pages.add(request.span().map_or(0, Range::pages));
        match place {
            Where::Everywhere => {
                counters.remote.add(1);
                counters.broadcasts.add(issued);
            }
            Where::Here => {
                counters.local.add(1);
                counters.local_tables.add(u64::from(request.reaches_lazy()));
            }
            Where::Nowhere => {
                counters.local.add(1);
                counters.elided_unused.add(1);
            }
        }
    }

    /// Decides where to flush, and orders the page-table stores before the invalidation.
    #[inline]
    fn place(&self, space: &Space<W>, me: usize, here: bool, request: &Request) -> Where {
        let place = place::<I, W>(M::KIND, space, me, here, request);
        if M::KIND == super::policy::Kind::Broadcast {
            Self::publish_stores();
        }
        place
    }

    /// The page-table stores reach the walkers before a TLBI takes effect; else a walker could fetch the old entry
    /// once more after it.
    #[inline(always)]
    fn publish_stores() {
        if !broken(Broken::NoDsbBefore) {
            I::dsb_ishst();
        }
    }

    /// Whether the range is flushed by pages or ranges.
    #[inline]
    fn fits(&self, range: &Range) -> bool {
        range.pages() < MAX_TLBI_OPERATIONS
            || (self.features().range && self.granule_pages(range) <= MAX_RANGE_PAGES)
    }

    /// How many pages of the granule the range has.
    #[inline]
    fn granule_pages(&self, range: &Range) -> u64 {
        range.bytes() / self.settings.paging().granule().bytes()
    }

    fn by_pages(&self, operations: Operations, asid: u16, range: &Range, request: &Request) -> u64 {
        let features = self.features();
        let granule = self.settings.paging().granule();
        // A level only where every entry had it: a table that was freed was an entry of a higher level.
        let uniform = (request.flags().contains(ChangeFlags::UNIFORM_LEVEL)
            && !request.frees_tables())
            || broken(Broken::WrongLevelHint);
        let hint = uniform && features.level_hint;
        if features.range && range.pages() > 1 && self.granule_pages(range) <= MAX_RANGE_PAGES {
            took(Branch::TlbiRange);
            let level = if hint { leaf_level(range.stride()) } else { 0 };
            let unit = features.base_unit(granule);
            let pages = self.granule_pages(range) - u64::from(broken(Broken::RangeShort));
            let mut issued = 0;
            for step in Plan::new(granule, unit, range.start(), pages) {
                issued += 1;
                match step {
                    Step::Page { addr } => {
                        self.tlbi(operations.address, by_address(asid, addr));
                    }
                    Step::Range { base, scale, num } => self.tlbi(
                        operations.range,
                        by_range(asid, granule, unit, base, scale, num, level),
                    ),
                }
            }
            return issued;
        }
        let hint = if hint {
            level_hint(granule, range.stride())
        } else {
            0
        };
        for page in range.iter() {
            self.tlbi(operations.address, by_address(asid, page) | hint);
        }
        range.pages()
    }

    #[inline(always)]
    fn tlbi(&self, operation: Tlbi, operand: u64) {
        if broken(Broken::SkipFlush) {
            return;
        }
        if broken(Broken::TlbiLocal) {
            I::tlbi(Tlbi::Vmalle1, 0);
            return;
        }
        I::tlbi(operation, operand);
    }

    /// The space's ASID as it is now.
    #[inline(always)]
    fn asid(&self, space: &Space<W>) -> u16 {
        let asid = space.tag.load(Acquire) as u16;
        if broken(Broken::TlbiWrongAsid) {
            asid ^ 1
        } else {
            asid
        }
    }

    /// Waits until the invalidations that this CPU issued are complete.
    #[inline]
    pub(super) fn synchronize(&self, reach: &Reach) {
        if broken(Broken::NoDsbAfter) {
            return;
        }
        if reach.everywhere && !broken(Broken::DsbWrongDomain) {
            I::dsb_ish();
            if self.features().repeat && !broken(Broken::NoRepeat) {
                // Any address will do: it is the second completion that counts.
                I::tlbi(Tlbi::Vale1Is, 0);
                I::dsb_ish();
            }
        } else if reach.here || reach.everywhere {
            I::dsb_nsh();
        }
        // What this CPU has fetched through an old kernel translation goes too. User code comes after an exception
        // return, which is a context synchronization event.
        if reach.kernel && !broken(Broken::NoIsbKernel) {
            I::isb();
        }
    }

    /// Drops everything of a retired space, also what is walked speculatively, before its tables are freed.
    pub(super) fn flush_retired(&self, asid: u16) {
        if broken(Broken::RetireUnflushed) {
            return;
        }
        I::dsb_ishst();
        I::tlbi(Tlbi::Aside1Is, by_asid(asid));
        self.synchronize(&Reach {
            everywhere: true,
            ..Reach::default()
        });
    }

    /// Drops what this CPU alone has for `addr`.
    pub(super) fn flush_own(&self, addr: u64) {
        I::dsb_ishst();
        I::tlbi(Tlbi::Vaae1, by_address(0, addr));
        I::dsb_nsh();
        I::isb();
    }

    /// Drops everything this CPU has.
    pub(super) fn flush_cpu(&self) {
        I::dsb_ishst();
        I::tlbi(Tlbi::Vmalle1, 0);
        I::dsb_nsh();
        I::isb();
    }
}
