//! Promotion: a space gets its global PCID.

use core::fmt;

use super::{Broadcast, PcidUse, Tag, operand};
use crate::{
    atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    coverage::{Branch, took},
    flusher::{Scope, address},
    platform::{IpiPlatform, IrqsOff, Patience, Pin},
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
    x86_64::{
        Courier, Instructions, Tlb, announce::retired, control, courier, pcid::PcidSlots,
        wait::Reach,
    },
};

/// Why a space has no global PCID, or can't do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum GlobalError {
    /// The courier does not broadcast, or PCIDs are not used.
    NotBroadcasting,
    /// All global PCIDs are in use: retire a space first.
    Exhausted,
    /// The space was [kept local](Tlb::keep_local).
    KeptLocal,
    /// The space has a global PCID, which it keeps for life.
    IsGlobal,
}

impl fmt::Display for GlobalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotBroadcasting => {
                "the flusher has no global PCIDs: INVLPGB and PCIDs are needed"
            }
            Self::Exhausted => "all global PCIDs are in use: retire a space first",
            Self::KeptLocal => "the space was kept local before",
            Self::IsGlobal => "the space has a global PCID, which it keeps until it retires",
        })
    }
}

impl core::error::Error for GlobalError {}

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// Gives `space` a global PCID now, however many CPUs run it. Waits, as [`Pending::wait`](crate::Pending::wait)
    /// does, and the same holds for locks. If another CPU is about to do it, it may not yet be settled on return.
    ///
    /// From then on a flush of it needs no interrupt, and a switch to it never drops anything.
    ///
    /// # How
    ///
    /// The transition is an ordinary request. First the PCID is made known (`in transition`), then a new generation is
    /// announced; a CPU that reads the generation afterwards, in a switch or to serve, finds the PCID and moves to it,
    /// and all others are told and waited for, those between two spaces included. Then no CPU runs the space
    /// with a PCID of its own, and the space is settled. A lazy CPU is told and not waited for; if it has not left by then,
    /// a later flush settles the space. Linux walks the CPUs on each flush instead until none
    /// is left (`finish_asid_transition`, arch/x86/mm/tlb.c).
    ///
    /// # Errors
    ///
    /// See [`GlobalError`]; the space stays local then. A space that is global already is no error.
    ///
    /// # Panics
    ///
    /// If the CPU is not online or the space has retired.
    ///
    /// ```
    /// use shootdown::{IpiPlatform, Space, x86_64::{GlobalError, Instructions, InvlpgbIpi}};
    ///
    /// /// A server with many threads: from the start, if there is a PCID left.
    /// fn spawn<P: IpiPlatform, I: Instructions>(tlb: &InvlpgbIpi<P, I>, space: &Space) {
    ///     match tlb.make_global(space) {
    ///         Ok(()) => assert!(space.tag() != 0),
    ///         Err(GlobalError::Exhausted) => {} // flushed by interrupts
    ///         Err(error) => panic!("{error}"),
    ///     }
    /// }
    /// ```
    pub fn make_global(&self, space: &Space<W>) -> Result<(), GlobalError> {
        let _pin = Pin::<P>::new();
        let _ = self.my_slot("make_global");
        if space.domain.is_retired() {
            retired(space.id);
        }
        let broadcast = self
            .courier
            .broadcast()
            .ok_or(GlobalError::NotBroadcasting)?;
        if broadcast.pcids.available().1 == 0 {
            return Err(GlobalError::NotBroadcasting);
        }
        match Tag(space.tag.load(Acquire)) {
            Tag::NONE => self.promote(broadcast, space),
            Tag::KEPT_LOCAL => Err(GlobalError::KeptLocal),
            _ => Ok(()),
        }
    }

    /// Says that `space` shall never get a global PCID, so that others may have it. For life.
    ///
    /// # Errors
    ///
    /// [`GlobalError::IsGlobal`] if it has one already.
    pub fn keep_local(&self, space: &Space<W>) -> Result<(), GlobalError> {
        let kept = Tag::KEPT_LOCAL.0;
        match space
            .tag
            .compare_exchange(Tag::NONE.0, kept, AcqRel, Relaxed)
        {
            Err(tag) if Tag(tag).pcid().is_some() => Err(GlobalError::IsGlobal),
            _ => Ok(()),
        }
    }

    /// Who has the global PCIDs; `None` if the courier does not broadcast.
    pub fn pcid_use(&self) -> Option<PcidUse> {
        let broadcast = self.courier.broadcast()?;
        Some(broadcast.pcids.usage(broadcast.threshold()))
    }

    /// After a flush by interrupts, so that the cost does not count: promotes `space` if more CPUs run it than the
    /// threshold. `reach` may be that of a batch, whose targets are those of several spaces: they are counted first since
    /// that costs nothing, and then those that run this one.
    #[inline]
    pub(super) fn consider_promotion(
        &self,
        broadcast: &Broadcast,
        space: &Space<W>,
        reach: &Reach<W>,
    ) {
        let threshold = broadcast.threshold();
        if (reach.targets.len() as u64) < threshold || space.tag.load(Relaxed) != Tag::NONE.0 {
            return;
        }
        let used = Loaded::used(space.id).0;
        let mut active = 0;
        space.cpus.for_each(|cpu| {
            active += u64::from(P::slot(cpu).seen.loaded.load(Relaxed) == used);
        });
        // A flush may end on a CPU that has gone offline since it began: another one will promote the space.
        let online = P::slot(P::current_cpu()).seen.flusher.get() == address(self);
        if active > threshold && online {
            // If there is no PCID left the space is flushed by interrupts as before.
            let _ = self.promote(broadcast, space);
        }
    }

    /// Gives `space` a global PCID. Called pinned.
    #[cold]
    #[inline(never)]
    fn promote(&self, broadcast: &Broadcast, space: &Space<W>) -> Result<(), GlobalError> {
        let Some(pcid) = self.allocate_pcid(broadcast) else {
            return Err(GlobalError::Exhausted);
        };
        let transition = Tag::in_transition(pcid).0;
        let begun = space
            .tag
            .compare_exchange(Tag::NONE.0, transition, SeqCst, Relaxed);
        if let Err(tag) = begun {
            took(Branch::PromotionLost);
            let _irqs = IrqsOff::<P>::new();
            broadcast
                .pcids
                .return_unused(pcid, || self.poll_and_relax());
            return match Tag(tag) {
                Tag::KEPT_LOCAL => Err(GlobalError::KeptLocal),
                _ => Ok(()),
            };
        }
        self.settle(space, pcid);
        Ok(())
    }

    /// Ends the transition of `space`, which the caller has begun or taken over: every CPU that runs it moves to `pcid`.
    ///
    /// A lazy CPU is told but not waited for, since it may be halted until the caller gives back a lock. While one still has
    /// the space with its own PCID, where freed tables must reach it, the space stays in transition; a later flush
    /// tries again.
    fn settle(&self, space: &Space<W>, pcid: u16) {
        let transition = Tag::in_transition(pcid);
        let mut reach = Reach::<W>::default();
        let generation = self.announce_promotion(space, &mut reach);
        if broken(Broken::TransitionClearedEarly) {
            space.tag.store(Tag::settled(pcid).0, Release);
        }
        reach.everyone = broken(Broken::PromotionWaitsForLazy);
        self.wait_for(Scope::Space(space), generation, &reach);
        let lazy = reach
            .targets
            .iter()
            .any(|cpu| self.stays_behind(cpu, space, generation));
        let ended = if lazy && !broken(Broken::PromotionForgetsLazy) {
            took(Branch::PromotionLeft);
            Tag::left(pcid)
        } else {
            took(Branch::Promoted);
            Tag::settled(pcid)
        };
        // Release: every CPU has moved before others see it settled. If the space has retired meanwhile, its PCID has
        // been given back, and nothing is to be done.
        let _ = space
            .tag
            .compare_exchange(transition.0, ended.0, AcqRel, Relaxed);
    }

    /// Whether `cpu` is lazy in `space` with entries older than `generation`, and so with its own PCID. One that is on its
    /// way from there has the old root loaded until it has decided.
    fn stays_behind(&self, cpu: usize, space: &Space<W>, generation: u64) -> bool {
        let seen = &P::slot(cpu).seen;
        let mut patience = Patience::default();
        loop {
            let loaded = Loaded(seen.loaded.load(Acquire));
            if loaded == Loaded::lazy(space.id) {
                return seen.generation.load(Acquire) < generation;
            }
            if loaded != Loaded::SWITCHING {
                return false;
            }
            if !self.serve_pending() {
                patience.turn::<P>(cpu);
            }
        }
    }

    /// After a flush: ends a transition that was left, once no CPU is lazy in the space.
    #[inline]
    pub(super) fn consider_settling(&self, space: &Space<W>) {
        let tag = Tag(space.tag.load(Relaxed));
        if let Some(pcid) = tag.left_pcid() {
            self.settle_left(space, tag, pcid);
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_left(&self, space: &Space<W>, tag: Tag, pcid: u16) {
        let mut lazy = false;
        space.cpus.for_each(|cpu| {
            let loaded = Loaded(P::slot(cpu).seen.loaded.load(Relaxed));
            lazy |= loaded == Loaded::lazy(space.id);
        });
        let claimed = !lazy
            && space
                .tag
                .compare_exchange(tag.0, Tag::in_transition(pcid).0, AcqRel, Relaxed)
                .is_ok();
        if claimed {
            took(Branch::PromotionEndedLater);
            self.settle(space, pcid);
        }
    }

    /// The middle of a promotion: tells every CPU that may run `space` with its own PCID.
    ///
    /// ```text
    /// promoter                           CPU that loads the space
    /// tag := the PCID, in transition     loaded := SWITCHING, mask bit set
    /// generation := g                    full barrier
    /// full barrier                       read the generation
    /// read the mask, read loaded         read the tag
    /// ```
    ///
    /// One of them sees what the other has stored: a CPU that has read an older generation is found here, and one that
    /// reads this generation or a later one finds the tag.
    fn announce_promotion(&self, space: &Space<W>, reach: &mut Reach<W>) -> u64 {
        let _irqs = IrqsOff::<P>::new();
        let my = self.my_slot("flush");
        let me = P::current_cpu();
        // Also if the space has retired: the promotion then ends, for whoever waits for it, with nobody to tell.
        let generation = space.domain.advance_always(I::barrier_after_rmw);
        // A lazy CPU keeps old entries in a PCID of its own; told, it leaves the space.
        space.cpus.for_each(|cpu| {
            if cpu == me {
                return;
            }
            let loaded = Loaded(P::slot(cpu).seen.loaded.load(Acquire));
            let here = loaded.is_space() && loaded.id() == space.id;
            let switching = loaded == Loaded::SWITCHING && !broken(Broken::PromotionSkipsSwitching);
            if here || switching {
                reach.targets.add(cpu);
            }
        });
        courier::interrupt::<P, I, W>(&reach.targets, false, my);
        self.catch_up_with_space(my);
        generation
    }

    /// The PCID that a CPU loads `space` with, where it is not one of its own. Asked after the generation was read.
    #[inline]
    pub(in super::super) fn global_pcid(&self, space: &Space<W>) -> Option<u16> {
        self.courier.broadcast()?;
        Tag(space.tag.load(Acquire)).pcid()
    }

    /// Moves this CPU, which has the space loaded with a PCID of its own, to the global one, if there is one, and says
    /// whether it did. The old PCID is not used for this space any more, so nothing need be dropped of it; of the new one
    /// this CPU has no entries yet.
    #[inline]
    pub(in super::super) fn moves_to_global(&self, my: &CpuSlot, space: &Space<W>) -> bool {
        let Some(pcid) = self.global_pcid(space) else {
            return false;
        };
        let slots = PcidSlots(&my.own);
        if slots.current_pcid() == pcid {
            return false;
        }
        took(Branch::MovedAtServe);
        slots.forget_current();
        slots.use_global(pcid);
        // SAFETY: it is the root that is loaded now; global PCIDs are given out only where CR4.PCIDE is set.
        unsafe { I::write_cr3(control::cr3_no_flush(space.root, pcid)) };
        true
    }

    /// Gives back the PCID of a space that has retired and that no CPU has loaded.
    pub(in super::super) fn release_pcid(&self, broadcast: &Broadcast, space: &Space<W>) {
        // A promotion that comes late must not find 0 and give the dead space a PCID.
        let tag = Tag(space.tag.swap(Tag::RETIRED.0, AcqRel));
        if let Some(pcid) = tag.pcid() {
            let _irqs = IrqsOff::<P>::new();
            broadcast.pcids.release(pcid, || self.poll_and_relax());
        }
    }

    fn allocate_pcid(&self, broadcast: &Broadcast) -> Option<u16> {
        let _irqs = IrqsOff::<P>::new();
        let my = self.my_slot("flush");
        let flush_all = || {
            // A CPU that has left a space has loaded another root before it was seen to have left.
            I::publish_before_invlpgb();
            I::invlpgb(operand::all_but_globals());
            my.counters.broadcasts.add(1);
            I::tlbsync();
        };
        broadcast
            .pcids
            .allocate(flush_all, || self.poll_and_relax())
    }

    /// A turn of a loop that spins with interrupts off.
    fn poll_and_relax(&self) {
        if !self.serve_pending() {
            P::relax();
        }
    }
}
