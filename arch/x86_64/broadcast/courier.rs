//! The courier that broadcasts where a space has a global PCID.

use super::{Broadcast, Home};
use crate::{
    cpus::CpuSet,
    x86_64::{Carried, Concurrent, Config, Courier, Errand, InitError},
};

/// Broadcasts (INVLPGB, TLBSYNC) flushes of the kernel and of spaces that many CPUs run; `C` serves the other spaces.
///
/// Only for CPUs that have INVLPGB: `init` refuses others. Where PCIDs are not used, all spaces are served by `C`. The
/// policy is that of Linux 6.15 (arch/x86/mm/tlb.c, van Riel, "AMD broadcast TLB invalidation"); the transition from the
/// CPUs' own PCIDs to a global one is different, see [`Tlb::make_global`](super::super::Tlb::make_global).
#[derive(Debug)]
pub struct Broadcasting<C = Concurrent> {
    below: C,
    broadcast: Home,
}

// SAFETY: CPUs are taken out by the courier underneath only.
unsafe impl<C: Courier> Courier for Broadcasting<C> {
    const INITIAL: Self = Self {
        below: C::INITIAL,
        broadcast: Home::new(),
    };

    const CARRIES: bool = C::CARRIES;

    fn is_concurrent(&self) -> bool {
        self.below.is_concurrent()
    }

    #[inline(always)]
    fn carry<const W: usize>(
        &self,
        me: usize,
        errand: &Errand,
        targets: &mut CpuSet<W>,
    ) -> Carried {
        self.below.carry(me, errand, targets)
    }

    #[inline(always)]
    fn broadcast(&self) -> Option<&Broadcast> {
        Some(self.broadcast.get())
    }

    fn check(&self, config: &Config) -> Result<(), InitError> {
        if config.features().invlpgb.is_none() {
            return Err(InitError::NoInvlpgb);
        }
        self.below.check(config)
    }

    fn configure(&self, config: &Config) {
        self.below.configure(config);
        self.broadcast.get().configure(config);
    }
}
