//! Flushes: broadcast invalidations, many of them under one DSB.

use super::{
    Broadcast, Instructions, Tlbi,
    broadcast::retired,
    operand::{by_address, by_asid},
};
use crate::{
    addr::Range,
    coverage::{Branch, took},
    flusher::Scope,
    platform::{IrqsOff, Platform},
    request::Request,
    slot::CpuSlot,
    space::Space,
    variant::{Broken, broken},
};

/// Ranges of more pages than this are flushed as a whole: each operation is a message to every CPU, and Linux found the
/// page count of one table to be a fair bound (`MAX_DVM_OPS`, arch/arm64/include/asm/tlbflush.h).
pub const MAX_TLBI_OPERATIONS: u64 = 512;

/// What a flush must still do to complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reach {
    /// Kernel translations: this CPU may have fetched instructions through them.
    kernel: bool,
}

impl<P: Platform, I: Instructions, const W: usize, const A: usize> Broadcast<P, I, W, A> {
    /// Issues the invalidations. The caller is pinned until [`synchronize`](Self::synchronize): a DSB completes
    /// only what its own CPU has issued (invariant 11).
    #[inline]
    pub(super) fn broadcast(&self, scope: Scope<'_, W>, request: &Request, reach: &mut Reach) {
        let my = {
            let _irqs = IrqsOff::<P>::new();
            let (my, _, _) = self.my_slot("flush");
            my.counters.flushes.add(1);
            my.counters.remote.add(1);
            if let Some(range) = request.span() {
                my.counters.pages.add(range.pages());
            }
            my
        };
        // The page-table stores reach the walkers before the TLBI takes effect; else a walker could fetch the old
        // entry once more after it.
        if !broken(Broken::NoDsbBefore) {
            I::dsb_ishst();
        }
        let by_page = request
            .span()
            .filter(|range| range.pages() <= MAX_TLBI_OPERATIONS);
        let leaf = !request.frees_tables() || broken(Broken::TlbiLeafForTable);
        let issued = match (scope, by_page) {
            (Scope::Space(space), Some(range)) => {
                took(if leaf {
                    Branch::TlbiLeaf
                } else {
                    Branch::TlbiTable
                });
                let operation = if leaf { Tlbi::Vale1Is } else { Tlbi::Vae1Is };
                self.by_page(operation, asid(space), range)
            }
            (Scope::Space(space), None) => {
                took(Branch::TlbiAsid);
                self.tlbi(Tlbi::Aside1Is, by_asid(asid(space)));
                1
            }
            (Scope::Kernel, Some(range)) => {
                took(Branch::TlbiKernel);
                let operation = if leaf { Tlbi::Vaale1Is } else { Tlbi::Vaae1Is };
                self.by_page(operation, 0, range)
            }
            (Scope::Kernel, None) => {
                took(Branch::TlbiAll);
                self.tlbi(Tlbi::Vmalle1Is, 0);
                1
            }
        };
        reach.kernel |= matches!(scope, Scope::Kernel);
        self.count(my, issued, by_page.is_none());
    }

    fn by_page(&self, operation: Tlbi, asid: u16, range: &Range) -> u64 {
        for page in range.iter() {
            self.tlbi(operation, by_address(asid, page));
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

    #[inline]
    fn count(&self, my: &CpuSlot, issued: u64, full: bool) {
        let _irqs = IrqsOff::<P>::new();
        my.counters.broadcasts.add(issued);
        my.counters.full.add(u64::from(full));
    }

    /// Waits until the invalidations that this CPU issued are complete on all CPUs.
    #[inline]
    pub(super) fn synchronize(&self, reach: &Reach) {
        if broken(Broken::DsbWrongDomain) {
            I::dsb_nsh();
        } else if !broken(Broken::NoDsbAfter) {
            I::dsb_ish();
        }
        // What this CPU has fetched through an old kernel translation goes too. User code comes after an exception
        // return, which is a context synchronization event.
        if reach.kernel && !broken(Broken::NoIsbKernel) {
            I::isb();
        }
    }

    /// Drops everything of an ASID before it is given to another space (invariant 8).
    pub(super) fn flush_asid(&self, asid: u16) {
        if broken(Broken::AsidReusedUnflushed) {
            return;
        }
        I::dsb_ishst();
        I::tlbi(Tlbi::Aside1Is, by_asid(asid));
        I::dsb_ish();
    }

    /// Drops what this CPU alone has for `addr`.
    pub(super) fn flush_own(&self, addr: u64) {
        I::dsb_ishst();
        I::tlbi(Tlbi::Vaae1, by_address(0, addr));
        I::dsb_nsh();
        I::isb();
    }
}

/// The ASID of `space`, which must not have retired: another space may have it then.
#[inline]
fn asid<const W: usize>(space: &Space<W>) -> u16 {
    if space.is_retired() {
        retired(space.id());
    }
    let asid = space.tag as u16;
    if broken(Broken::TlbiWrongAsid) {
        asid ^ 1
    } else {
        asid
    }
}
