//! Flushes by INVLPGB, and the TLBSYNC that completes them.

use super::{
    Broadcast, Tag,
    operand::{self, Whose},
};
use crate::{
    atomic::Ordering::Acquire,
    coverage::{Branch, took},
    flusher::Scope,
    platform::IpiPlatform,
    request::Request,
    slot::CpuSlot,
    space::Space,
    variant::{Broken, broken},
    x86_64::{Courier, Instructions, Tlb, announce::retired, wait::Reach},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// Flushes `space` if it is settled; gives its generation then, which stays as it is: no CPU has to be told.
    ///
    /// Entries of other PCIDs than the global one are out of reach: no CPU runs the space with another one, and none
    /// will, since a switch that begins now finds the tag. All CPUs drop the entries, lazy ones too, and paging-structure
    /// caches with them where tables were freed.
    #[inline]
    pub(in super::super) fn flush_settled(
        &self,
        broadcast: &Broadcast,
        my: &CpuSlot,
        space: &Space<W>,
        request: &Request,
        reach: &Reach<W>,
    ) -> Option<u64> {
        // Acquire: pairs with the release in `settle`, so that every CPU has moved before.
        let pcid = Tag(space.tag.load(Acquire)).settled_pcid()?;
        let Some(generation) = space.domain.generation_unless_retired() else {
            retired(space.id);
        };
        took(Branch::SettledFlush);
        if self.invalidate(broadcast, my, Whose::Pcid(pcid), request, reach) {
            my.counters.full.add(1);
        }
        Some(generation)
    }

    /// Flushes what CPUs may have of a global PCID that they are about to get or already have, or have left
    /// (invariant 10). For a flush that tells CPUs as well; called after its full barrier:
    ///
    /// ```text
    /// initiator                       CPU that loads the space, and perhaps leaves it again
    /// clear the entry                 read the tag
    /// generation, full barrier        write CR3: the global PCID, nothing dropped
    /// read the tag                    walk the tables
    /// ```
    ///
    /// A CPU that has got the PCID before this look is covered by the broadcast, even if it has left the space and is not
    /// told. One that gets it later finds the new entry, since its walks come after its write of CR3, which serializes.
    #[inline]
    pub(in super::super) fn flush_in_transition(
        &self,
        broadcast: &Broadcast,
        my: &CpuSlot,
        space: &Space<W>,
        request: &Request,
        reach: &Reach<W>,
    ) {
        if let Some(pcid) = Tag(space.tag.load(Acquire)).pcid()
            && !broken(Broken::TransitionNotBroadcast)
        {
            took(Branch::TransitionFlush);
            self.invalidate(broadcast, my, Whose::Pcid(pcid), request, reach);
        }
    }

    /// Flushes the kernel's mappings on all CPUs, those that are not online included. No generation is needed: a CPU
    /// that comes online drops everything.
    pub(in super::super) fn flush_kernel_everywhere(
        &self,
        broadcast: &Broadcast,
        my: &CpuSlot,
        request: &Request,
        reach: &Reach<W>,
    ) -> u64 {
        took(Branch::KernelBroadcast);
        if self.invalidate(broadcast, my, Whose::Anyone, request, reach) {
            my.counters.full.add(1);
        }
        self.kernel.generation()
    }

    /// Broadcasts what `request` names of `whose` entries, and says whether that was everything. Complete after
    /// [`complete_broadcast`](Self::complete_broadcast) with the same `reach`, on the same CPU.
    ///
    /// ```text
    /// initiator                       another CPU
    /// clear the entry                 the entry is dropped
    /// MFENCE                          walk the tables: must not see the old entry
    /// INVLPGB
    /// ```
    #[inline]
    fn invalidate(
        &self,
        broadcast: &Broadcast,
        my: &CpuSlot,
        whose: Whose,
        request: &Request,
        reach: &Reach<W>,
    ) -> bool {
        if !broken(Broken::NoFenceBeforeInvlpgb) {
            I::publish_before_invlpgb();
        }
        let ceiling = self.settings.mode().ceiling();
        // Tables of the kernel may be cached for other addresses, and with TCE those of a space as well.
        let by_page =
            !request.frees_tables() || (whose != Whose::Anyone && !self.keeps_unrelated_tables());
        let span = request
            .span()
            .filter(|range| by_page && operand::steps(range) <= ceiling);
        let issued = match span {
            Some(range) => {
                let leaves_only = !request.frees_tables();
                let mut issued = 0;
                for operands in operand::pages(whose, range, leaves_only, broadcast.extra()) {
                    I::invlpgb(operands);
                    issued += 1;
                }
                issued
            }
            None => {
                I::invlpgb(operand::all(whose));
                1
            }
        };
        my.counters.broadcasts.add(issued);
        reach.broadcast.set(true);
        span.is_none()
    }

    /// Waits for what this CPU has broadcast for `reach`, once for all members of a batch, then sees whether a space
    /// that was flushed by interrupts is to be promoted. The caller has been pinned since the first INVLPGB: TLBSYNC
    /// waits for those of its own CPU only.
    #[inline]
    pub(in super::super) fn complete_broadcast(
        &self,
        broadcast: &Broadcast,
        scope: Scope<'_, W>,
        reach: &Reach<W>,
    ) {
        if reach.broadcast.take() && !broken(Broken::NoTlbsync) && !broken(Broken::TlbsyncElsewhere)
        {
            I::tlbsync();
        }
        if let Scope::Space(space) = scope
            && !reach.targets.is_empty()
        {
            self.consider_promotion(broadcast, space, reach);
        }
    }
}
