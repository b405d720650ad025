//! Context switches and lazy mode.

use super::{Broadcast, Instructions, asid::RESERVED, broadcast::retired, operand::ttbr};
use crate::{
    atomic::{
        Ordering::{Relaxed, Release, SeqCst},
        fence,
    },
    coverage::{Branch, took},
    flusher::{Outer, OuterState},
    platform::{IrqsOff, Platform},
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
};

impl<P: Platform, I: Instructions, const W: usize, const A: usize> Broadcast<P, I, W, A> {
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
        my.seen.loaded.store(Loaded::SWITCHING.0, Relaxed);
        let known = space.cpus.contains(me);
        if known {
            took(Branch::SwitchBitSet);
        } else {
            took(Branch::SwitchBitClear);
            space.cpus.insert(me);
        }
        // SWITCHING and the bit are published before retirement is looked at; pairs with the barrier in `retire`:
        // either this CPU sees that the space has retired, or `retire` sees this CPU and waits.
        if !broken(Broken::NoSwitchBarrier) {
            fence(SeqCst);
        }
        if space.is_retired() {
            if !known {
                space.cpus.remove(me);
            }
            my.seen.loaded.store(loaded.0, Release);
            retired(space.id);
        }
        my.counters.switches.add(1);
        // SAFETY: promised by the caller.
        unsafe { self.load(my, space.root, space.tag as u16, Loaded::used(space.id)) }
    }

    /// Loads a root together with its ASID: one register write, so no walk mixes one space's table with another's ASID,
    /// and no reserved root is needed in between.
    ///
    /// # Safety
    ///
    /// As for [`TlbFlusher::switch`](crate::TlbFlusher::switch).
    #[inline]
    unsafe fn load(&self, my: &CpuSlot, root: u64, asid: u16, becomes: Loaded) {
        // SAFETY: promised by the caller.
        unsafe { I::write_ttbr0(ttbr(root, asid)) };
        // The write takes effect before anything that relies on it.
        if !broken(Broken::NoIsbSwitch) {
            I::isb();
        }
        my.seen.loaded.store(becomes.0, Release);
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
        my.seen.loaded.store(Loaded::SWITCHING.0, Relaxed);
        // SAFETY: promised by the caller.
        unsafe { self.load(my, self.settings.reserved_root(), RESERVED, Loaded::KERNEL) }
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
