//! Trimming: a CPU that has left a space leaves its mask too, once asked.
//!
//! Only the CPU itself may clear its bit. Were an initiator to clear it, the CPU could be on its way back meanwhile,
//! having found its bit set, and another initiator would miss it.

use super::{Courier, Instructions, Tlb, trim_mail};
use crate::{
    atomic::Ordering::Relaxed,
    coverage::{Branch, took},
    platform::IpiPlatform,
    slot::{CpuSlot, Loaded},
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    /// Takes a trim request, if there is one. Interrupts are off, and no switch is under way.
    #[inline(always)]
    pub(super) fn answer_trim(&self, my: &CpuSlot) {
        if my.mail.trim.load(Relaxed) != 0 {
            self.answer_trim_now(my);
        }
    }

    #[cold]
    #[inline(never)]
    fn answer_trim_now(&self, my: &CpuSlot) {
        let me = P::current_cpu();
        trim_mail::take::<W>(my, |space| {
            let loaded = Loaded(my.seen.loaded.load(Relaxed));
            if loaded.is_space() && loaded.id() == space.id && !broken(Broken::TrimLoaded) {
                took(Branch::TrimRefused);
            } else {
                took(Branch::Trimmed);
                // What its PCID still has is found old by its generation when the space is loaded again.
                space.cpus.remove(me);
            }
        });
    }
}
