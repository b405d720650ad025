//! Context switches and lazy mode.

use super::{
    Instructions, Tlb,
    lifecycle::COMMON_NOT_PRIVATE,
    operand::ttbr,
    policy::{self, Policy, drop_own},
    tlb::retired,
};
use crate::{
    asid::{Activated, RESERVED},
    atomic::{
        Ordering::{Relaxed, Release, SeqCst},
        fence,
    },
    coverage::{Branch, took},
    flusher::{Outer, OuterState},
    loaded_space,
    platform::{IrqsOff, Platform},
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
};

/// The ASID field of a TTBR.
const ASID_FIELD: u64 = 0xffff << 48;

impl<P: Platform, M: Policy, I: Instructions, const W: usize, const A: usize> Tlb<P, M, I, W, A> {
    /// # Safety
    ///
    /// As for [`TlbFlusher::switch`](crate::TlbFlusher::switch).
    #[inline]
    pub(super) unsafe fn switch_to(&self, space: &Space<W>) {
        let (_, _, loaded) = self.my_slot("switch");
        if loaded == Loaded::used(space.id) {
            took(Branch::SwitchSame);
            return;
        }
        let _irqs = IrqsOff::<P>::new();
        let (my, me, loaded) = self.my_slot("switch");
        // SAFETY: promised by the caller.
        unsafe { self.load_space(my, me, loaded, space) }
    }

    /// # Safety
    ///
    /// As for [`TlbFlusher::switch`](crate::TlbFlusher::switch).
    unsafe fn load_space(&self, my: &CpuSlot, me: usize, loaded: Loaded, space: &Space<W>) {
        let old = loaded_space::get::<W>(my);
        my.seen.loaded.store(Loaded::SWITCHING.0, Relaxed);
        // SWITCHING is published before retirement is looked at; pairs with the barrier in `retire`: either this CPU
        // sees that the space has retired, or `retire` sees this CPU and waits.
        if !broken(Broken::NoSwitchBarrier) {
            fence(SeqCst);
        }
        if space.is_retired() {
            my.seen.loaded.store(loaded.0, Release);
            retired(space.id);
        }
        my.counters.switches.add(1);
        // A CPU must have left the old space before the new one's ASID is noted as its own, since a rollover then lets go
        // of the old one's, and before it is counted out; and nothing of the new space may be loaded while its stale
        // entries are dropped.
        // SAFETY: the caller's promise covers the reserved root, which `Config` says suits kernel code.
        unsafe { self.pass_reserved(old) };
        let Activated { asid, slowly } = self.asids.activate::<P>(
            space,
            me,
            self.settings.asids(),
            || self.flush_cpu(),
            || policy::forgotten(M::KIND, space),
        );
        if slowly && M::KIND == policy::Kind::Broadcast {
            // A tag that is new is visible before walks with its ASID begin: a flush that reads the old one has made its
            // change visible before. The other policies have a barrier of their own.
            I::dsb_ish();
        }
        if policy::enter::<I, W>(M::KIND, space, me, asid) {
            my.counters.switches_flushed.add(1);
        }
        if M::KIND != policy::Kind::Local && !space.cpus.contains(me) {
            // Only to know that the space was loaded at all.
            space.cpus.insert(me);
        }
        loaded_space::set(my, space);
        // SAFETY: promised by the caller.
        unsafe { self.load_root(space.root, asid) };
        if broken(Broken::StaleFlushedLate) {
            drop_own::<I>(asid);
        }
        my.seen.loaded.store(Loaded::used(space.id).0, Release);
    }

    /// Loads a root together with its ASID.
    ///
    /// With the ASID in TTBR0 that is one register write: no walk mixes one space's table with another's ASID. With the
    /// ASID in TTBR1 it is two, and the reserved root, loaded before, keeps walks out meanwhile.
    ///
    /// # Safety
    ///
    /// As for [`TlbFlusher::switch`](crate::TlbFlusher::switch).
    #[inline]
    unsafe fn load_root(&self, root: u64, asid: u16) {
        let root = if broken(Broken::CnpIgnored) {
            root | I::read_ttbr1() & COMMON_NOT_PRIVATE
        } else {
            root
        };
        // SAFETY: promised by the caller; of TTBR1 only the ASID field changes.
        unsafe {
            if self.settings.asid_in_ttbr1() {
                I::write_ttbr1(ttbr(I::read_ttbr1() & !ASID_FIELD, asid));
                I::isb();
                I::write_ttbr0(root);
            } else {
                I::write_ttbr0(ttbr(root, asid));
            }
        }
        self.synchronize_context();
    }

    /// The register writes take effect before anything that relies on them.
    #[inline(always)]
    fn synchronize_context(&self) {
        if !broken(Broken::NoIsbSwitch) {
            I::isb();
        }
    }

    /// Loads the reserved root and counts this CPU out of the space that it leaves.
    ///
    /// # Safety
    ///
    /// The reserved root must map what the code that runs now needs of TTBR0.
    #[inline]
    unsafe fn pass_reserved(&self, old: Option<&Space<W>>) {
        if broken(Broken::CountedOutEarly)
            && let Some(old) = old
        {
            policy::leave::<I, W>(M::KIND, old);
        }
        let root = self.settings.reserved_root();
        // SAFETY: promised by the caller; of TTBR1 only the ASID field changes.
        unsafe {
            if self.settings.asid_in_ttbr1() {
                // The mirror of loading a space: the old root must not be walked under the reserved ASID.
                I::write_ttbr0(root);
                I::isb();
                I::write_ttbr1(ttbr(I::read_ttbr1() & !ASID_FIELD, RESERVED));
            } else {
                I::write_ttbr0(ttbr(root, RESERVED));
            }
        }
        self.synchronize_context();
        if !broken(Broken::CountedOutEarly)
            && let Some(old) = old
        {
            policy::leave::<I, W>(M::KIND, old);
        }
    }

    /// # Safety
    ///
    /// As for [`TlbFlusher::unload`](crate::TlbFlusher::unload).
    pub(super) unsafe fn unload_any(&self) {
        let _irqs = IrqsOff::<P>::new();
        let (my, _, loaded) = self.my_slot("unload");
        if loaded != Loaded::KERNEL {
            // SAFETY: promised by the caller.
            unsafe { self.load_reserved(my) };
        }
    }

    /// # Safety
    ///
    /// The reserved root must map what the code that runs now needs of TTBR0.
    pub(super) unsafe fn load_reserved(&self, my: &CpuSlot) {
        let old = loaded_space::get::<W>(my);
        my.seen.loaded.store(Loaded::SWITCHING.0, Relaxed);
        // SAFETY: promised by the caller.
        unsafe { self.pass_reserved(old) };
        my.seen.loaded.store(Loaded::KERNEL.0, Release);
    }

    #[inline]
    pub(super) fn enter_lazy(&self) -> Outer {
        let _irqs = IrqsOff::<P>::new();
        let (my, _, loaded) = self.my_slot("lazy_enter");
        if !loaded.is_used() {
            return Outer(OuterState::Idle);
        }
        // SAFETY: kernel code runs, which the reserved root suits: the kernel said so with `Config`.
        unsafe { self.load_reserved(my) };
        Outer(OuterState::Used(loaded.id()))
    }

    /// # Safety
    ///
    /// As for [`TlbFlusher::lazy_leave`](crate::TlbFlusher::lazy_leave).
    #[inline]
    pub(super) unsafe fn leave_lazy(&self, outer: Outer, space: &Space<W>) {
        if let OuterState::Used(id) = outer.0 {
            assert!(
                id == space.id,
                "shootdown: lazy_leave with space {}, but space {id} was in use at lazy_enter",
                space.id
            );
            // SAFETY: promised by the caller.
            unsafe { self.switch_to(space) }
        }
    }
}
