//! The receiver: catch up with the generations of the loaded space and of the kernel.
//!
//! Everything here runs with interrupts off on the CPU that `my` belongs to, so that a published generation never goes
//! backwards: a nested handler could publish a later one than the outer handler is about to.

use super::{
    Courier, Instructions, InvpcidKind, Tlb, control, payload,
    pcid::{KERNEL_PCID, PcidSlots},
};
use crate::{
    atomic::{
        Ordering::{Relaxed, Release, SeqCst},
        fence,
    },
    coverage::{Branch, took},
    domain::CatchUp,
    flusher::address,
    loaded_space,
    platform::{IpiPlatform, IrqsOff},
    slot::{Asked, CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// Whether this CPU is asked to serve.
    #[inline(always)]
    pub(super) fn is_asked() -> bool {
        P::own_slot().mail.pending.load(Relaxed) != 0
    }

    /// Serves if a request is pending.
    #[inline]
    pub(super) fn serve_pending(&self) -> bool {
        // Found on a CPU that is not pinned it may be another CPU's, then serving is merely early.
        let pending = Self::is_asked();
        if pending {
            self.serve_now();
        }
        pending
    }

    #[cold]
    #[inline(never)]
    fn serve_now(&self) {
        let _irqs = (!broken(Broken::PollUnmasked)).then(IrqsOff::<P>::new);
        self.serve(P::own_slot());
    }

    /// Serves whatever was requested from this CPU.
    #[inline(always)]
    pub(super) fn serve(&self, my: &CpuSlot) {
        if my.seen.flusher.get() != address(self) {
            return;
        }
        // Before generations are read: an initiator that finds 1 relies on being served by the look that is still
        // to come (see `courier::interrupt`).
        let asked = if broken(Broken::NoServeBarrier) {
            let asked = my.mail.pending.load(Relaxed);
            my.mail.pending.store(0, Relaxed);
            asked
        } else {
            let asked = my.mail.pending.swap(0, SeqCst);
            I::barrier_after_rmw();
            asked
        };
        if broken(Broken::TlbsyncElsewhere) {
            I::tlbsync();
        }
        if asked & Asked::MORE != 0 {
            return self.serve_all(my);
        }
        self.catch_up_with_space(my);
    }

    /// As `serve`, where there is more than a space to look after. Out of the way of what is frequent.
    #[cold]
    #[inline(never)]
    pub(super) fn serve_all(&self, my: &CpuSlot) {
        self.answer_trim(my);
        self.catch_up_with_kernel(my);
        self.catch_up_with_space(my);
    }

    /// Brings this CPU's entries of its loaded space up to the space's generation, or leaves the space if lazy.
    #[inline(always)]
    pub(super) fn catch_up_with_space(&self, my: &CpuSlot) {
        let Some(space) = loaded_space::used::<W>(my) else {
            return self.catch_up_out_of_use(my);
        };
        // Read BEFORE flushing (invariant 4): a change that comes meanwhile is not claimed.
        let now = space.domain.raw_generation();
        let have = my.seen.generation.load(Relaxed);
        if now.wrapping_sub(have) != 1 {
            return self.catch_up_from(my, space, have);
        }
        self.flush_space_to(my, space, space.domain.last_step(now), now);
    }

    /// One generation is the most frequent distance; this is for others.
    #[cold]
    #[inline(never)]
    fn catch_up_from(&self, my: &CpuSlot, space: &Space<W>, have: u64) {
        let now = space.domain.generation();
        if have == now {
            took(Branch::ServedNothing);
            return;
        }
        self.flush_space_to(my, space, space.domain.catch_up(have, now), now);
    }

    /// No space is in use: one that is lazy is left.
    #[cold]
    #[inline(never)]
    fn catch_up_out_of_use(&self, my: &CpuSlot) {
        let Some(space) = loaded_space::get::<W>(my) else {
            return;
        };
        // Read BEFORE flushing (invariant 4): a change that comes meanwhile is not claimed.
        let now = space.domain.generation();
        let have = my.seen.generation.load(Relaxed);
        // A CPU that became lazy after it had caught up with the retirement itself must still leave.
        if have == now && !space.domain.is_retired() {
            took(Branch::ServedNothing);
            return;
        }
        if broken(Broken::LazyStays) {
            my.seen.generation.store(now, Release);
            return;
        }
        // Paging-structure caches must go, and the next flush need not come here at all.
        took(Branch::LazyUnloaded);
        // SAFETY: the CPU is lazy, so what runs now is kernel code, which the kernel's own root maps as well:
        // promised with `switch`, whose space shares the kernel's mappings.
        unsafe { self.load_kernel_root(my) };
    }

    /// Drops what the loaded `space` changed up to generation `now`, which is `todo`, and publishes `now`.
    #[inline(always)]
    pub(super) fn flush_space_to(&self, my: &CpuSlot, space: &Space<W>, todo: CatchUp, now: u64) {
        if broken(Broken::AckBeforeFlush) {
            my.seen.generation.store(now, Release);
        }
        if self.moves_to_global(my, space) {
            // Release: CR3 comes before the acknowledgement.
            my.seen.generation.store(now, Release);
            return;
        }
        if !broken(Broken::SkipFlush) {
            match todo {
                CatchUp::UpToDate => {}
                CatchUp::One(first) => {
                    took(Branch::ServedPartial);
                    my.counters.served_partial.add(1);
                    payload::for_each_page(first, I::invlpg);
                }
                CatchUp::Two(first, second) => {
                    took(Branch::ServedTwo);
                    my.counters.served_partial.add(1);
                    payload::for_each_page(first, I::invlpg);
                    payload::for_each_page(second, I::invlpg);
                }
                CatchUp::All => {
                    took(Branch::ServedFull);
                    my.counters.served_full.add(1);
                    Self::flush_loaded();
                }
            }
        }
        let now = if broken(Broken::GenerationReadLate) {
            space.domain.generation()
        } else {
            now
        };
        // Release: the flush comes before the acknowledgement.
        my.seen.generation.store(now, Release);
    }

    /// Drops all entries of the loaded space, by loading it again. Kernel entries that are global stay.
    #[inline(always)]
    pub(super) fn flush_loaded() {
        // SAFETY: it is the root that is loaded now, with the same PCID: bit 63, which would keep entries, reads as 0.
        unsafe { I::write_cr3(I::read_cr3()) };
    }

    /// Brings this CPU's kernel entries up to the kernel's generation.
    #[inline(always)]
    pub(super) fn catch_up_with_kernel(&self, my: &CpuSlot) {
        // Read BEFORE flushing (invariant 4).
        let now = self.kernel.raw_generation();
        let have = my.seen.kernel_generation.load(Relaxed);
        if have != now {
            self.flush_kernel_to(my, have, now);
        }
    }

    /// Drops what the kernel's mappings changed from generation `have` to `now`, and publishes `now`.
    #[cold]
    #[inline(never)]
    fn flush_kernel_to(&self, my: &CpuSlot, have: u64, now: u64) {
        match self.kernel.catch_up(have, now) {
            CatchUp::UpToDate => {}
            CatchUp::One(first) => {
                took(Branch::KernelPartial);
                my.counters.served_partial.add(1);
                payload::for_each_page(first, I::invlpg);
            }
            CatchUp::Two(first, second) => {
                took(Branch::KernelPartial);
                my.counters.served_partial.add(1);
                payload::for_each_page(first, I::invlpg);
                payload::for_each_page(second, I::invlpg);
            }
            CatchUp::All => {
                took(Branch::KernelFull);
                my.counters.served_full.add(1);
                self.flush_everything();
            }
        }
        my.seen.kernel_generation.store(now, Release);
    }

    /// Drops everything: all PCIDs, globals included.
    pub(super) fn flush_everything(&self) {
        if self.settings.mode().invpcid() {
            I::invpcid(InvpcidKind::AllWithGlobals, 0, 0);
            return;
        }
        // A change of CR4.PGE drops everything of all PCIDs (Intel SDM volume 3, "Operations that Invalidate TLBs and
        // Paging-Structure Caches").
        let cr4 = I::read_cr4();
        if cr4 & (control::CR4_PGE | control::CR4_PCIDE) == 0 {
            // Neither global entries nor other PCIDs: a CPU without PGE must not be made to set it.
            // SAFETY: the value that is loaded now.
            unsafe { I::write_cr3(I::read_cr3()) };
            return;
        }
        // SAFETY: PGE only decides whether global entries are cached; it is put back at once.
        unsafe {
            I::write_cr4(cr4 ^ control::CR4_PGE);
            I::write_cr4(cr4);
        }
    }

    /// Loads the kernel's own root; no space is loaded then.
    ///
    /// # Safety
    ///
    /// The kernel's root must map the code and the stack that run now.
    pub(super) unsafe fn load_kernel_root(&self, my: &CpuSlot) {
        let loaded = Loaded(my.seen.loaded.load(Relaxed));
        if loaded.is_space() {
            PcidSlots(&my.own).save(my.seen.generation.load(Relaxed));
        }
        my.seen.loaded.store(Loaded::SWITCHING.0, Relaxed);
        let root = self.settings.kernel_root();
        let cr3 = if self.settings.mode().pcid() {
            // Entries of the kernel's PCID are kept: kernel flushes reach every PCID.
            control::cr3_no_flush(root, KERNEL_PCID)
        } else {
            control::cr3(root, 0)
        };
        // SAFETY: promised by the caller; the value suits CR4.PCIDE, which `online` has set where PCIDs are used.
        unsafe { I::write_cr3(cr3) };
        // Release: the space is unloaded before others see it gone.
        my.seen.loaded.store(Loaded::KERNEL.0, Release);
    }

    /// A full barrier that no locked instruction has begun.
    #[inline(always)]
    pub(super) fn full_barrier() {
        fence(SeqCst);
    }
}
