//! Context switches and lazy mode.
//!
//! Between `loaded := SWITCHING` and the new value there is no spin, lock, poll or wait: initiators wait for it.

use super::{
    Courier, Instructions, Tlb,
    announce::retired,
    control,
    pcid::{Entries, PcidSlots},
};
use crate::{
    atomic::Ordering::{Relaxed, Release},
    coverage::{Branch, took},
    flusher::{Outer, OuterState},
    loaded_space,
    platform::{IpiPlatform, IrqsOff},
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// # Safety
    ///
    /// As for [`TlbFlusher::switch`](crate::TlbFlusher::switch).
    #[inline]
    pub(super) unsafe fn switch_to(&self, space: &Space<W>) {
        // The same space, in use: flushes reach this CPU all the while, there is nothing to do. No interrupt can change
        // that behind this look: only a lazy CPU's space is unloaded.
        let my = self.my_slot("switch");
        if Loaded(my.seen.loaded.load(Relaxed)) == Loaded::used(space.id) {
            took(Branch::SwitchSame);
            return;
        }
        // The caller is pinned, so the slot stays its own; what is loaded is looked at again.
        let _irqs = IrqsOff::<P>::new();
        // SAFETY: promised by the caller.
        unsafe { self.load(my, space) }
    }

    /// Loads `space`. Interrupts are off.
    ///
    /// # Safety
    ///
    /// As for [`TlbFlusher::switch`](crate::TlbFlusher::switch).
    unsafe fn load(&self, my: &CpuSlot, space: &Space<W>) {
        let me = P::current_cpu();
        let loaded = Loaded(my.seen.loaded.load(Relaxed));
        if broken(Broken::MaskClearedEarly)
            && let Some(old) = loaded_space::get::<W>(my)
            && old.id != space.id
        {
            old.cpus.remove(me);
        }
        let have = my.seen.generation.load(Relaxed);
        if self.settings.mode().pcid() && loaded.is_space() {
            PcidSlots(&my.own).save(have);
        }
        my.seen.loaded.store(Loaded::SWITCHING.0, Relaxed);
        // SWITCHING and the mask bit are published before the generation is read (invariant 2); pairs with the
        // barrier in `announce_to_space`. A locked instruction is one, but where the bit is set already there is none
        // (Linux lacked this until 2025, commit 83b0177a6c48).
        let known = space.cpus.contains(me);
        if known {
            took(Branch::SwitchBitSet);
            let lazy_here = loaded.id() == space.id;
            let skip = if lazy_here {
                broken(Broken::NoLazyBarrier)
            } else {
                broken(Broken::NoSwitchBarrier)
            };
            if !skip {
                Self::full_barrier();
            }
        } else {
            took(Branch::SwitchBitClear);
            space.cpus.insert(me);
            I::barrier_after_rmw();
        }
        let Some(now) = space.domain.generation_unless_retired() else {
            if !known {
                space.cpus.remove(me);
            }
            my.seen.loaded.store(loaded.0, Release);
            retired(space.id);
        };
        if loaded.is_space() && loaded.id() == space.id {
            if have != now && !broken(Broken::LazyLeaveNoCompare) {
                return self.end_lazy_behind(my, space, have, now);
            }
            took(Branch::LazyLeftFresh);
        } else {
            // SAFETY: promised by the caller.
            unsafe { self.load_root(my, space, now) };
        }
        // After CR3: whoever sees the new generation knows that the old space is unloaded. Release, as is the next.
        my.seen.generation.store(now, Release);
        my.seen.loaded.store(Loaded::used(space.id).0, Release);
        // Last, as the rare calls here are, so that a switch needs no stack frame.
        self.answer_trim(my);
    }

    /// The space is still loaded, only out of use: catches up with what was skipped meanwhile, and ends the switch.
    #[cold]
    #[inline(never)]
    fn end_lazy_behind(&self, my: &CpuSlot, space: &Space<W>, have: u64, now: u64) {
        took(Branch::LazyLeftBehind);
        self.flush_space_to(my, space, space.domain.catch_up(have, now), now);
        my.seen.loaded.store(Loaded::used(space.id).0, Release);
        self.answer_trim(my);
    }

    /// Loads the root of `space` and drops or keeps what its PCID has.
    ///
    /// # Safety
    ///
    /// As for [`TlbFlusher::switch`](crate::TlbFlusher::switch).
    #[inline]
    unsafe fn load_root(&self, my: &CpuSlot, space: &Space<W>, now: u64) {
        my.counters.switches.add(1);
        let cr3 = if let Some(pcid) = self.global_pcid(space) {
            took(Branch::MovedAtSwitch);
            // All its entries are flushed on all CPUs, so that they are valid whenever it is loaded.
            PcidSlots(&my.own).use_global(pcid);
            control::cr3_no_flush(space.root, pcid)
        } else if self.settings.mode().pcid() {
            let (pcid, entries) = PcidSlots(&my.own).choose(space.id, now);
            match entries {
                Entries::Fresh => {
                    took(Branch::SwitchFresh);
                    control::cr3_no_flush(space.root, pcid)
                }
                Entries::Behind => {
                    took(Branch::SwitchBehind);
                    my.counters.switches_flushed.add(1);
                    control::cr3(space.root, pcid)
                }
                Entries::Foreign => {
                    took(Branch::SwitchSlotTaken);
                    my.counters.switches_flushed.add(1);
                    control::cr3(space.root, pcid)
                }
            }
        } else {
            took(Branch::SwitchPlain);
            my.counters.switches_flushed.add(1);
            control::cr3(space.root, 0)
        };
        if broken(Broken::AckBeforeCr3) {
            my.seen.generation.store(now, Release);
            my.seen.loaded.store(Loaded::used(space.id).0, Release);
        }
        loaded_space::set(my, space);
        // SAFETY: the caller promises that the root maps what runs now; the value suits CR4.PCIDE, which `online` has
        // set where PCIDs are used.
        unsafe { I::write_cr3(cr3) };
    }

    /// # Safety
    ///
    /// As for [`TlbFlusher::unload`](crate::TlbFlusher::unload).
    pub(super) unsafe fn unload_any(&self) {
        let _irqs = IrqsOff::<P>::new();
        let my = self.my_slot("unload");
        let loaded = Loaded(my.seen.loaded.load(Relaxed));
        if loaded != Loaded::KERNEL {
            // SAFETY: promised by the caller.
            unsafe { self.load_kernel_root(my) };
        }
    }

    #[inline]
    pub(super) fn enter_lazy(&self) -> Outer {
        let _irqs = IrqsOff::<P>::new();
        let my = self.my_slot("lazy_enter");
        let loaded = Loaded(my.seen.loaded.load(Relaxed));
        if !loaded.is_used() {
            return Outer(OuterState::Idle);
        }
        // Release: uses of the space come before. No barrier is needed: being skipped late is harmless.
        my.seen.loaded.store(loaded.as_lazy().0, Release);
        Outer(OuterState::Used(loaded.id()))
    }

    /// # Safety
    ///
    /// As for [`TlbFlusher::lazy_leave`](crate::TlbFlusher::lazy_leave).
    #[inline]
    pub(super) unsafe fn leave_lazy(&self, outer: Outer, space: &Space<W>) {
        match outer.0 {
            OuterState::Idle => {}
            OuterState::Used(id) => {
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
}
