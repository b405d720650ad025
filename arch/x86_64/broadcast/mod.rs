//! Broadcast invalidation: INVLPGB and TLBSYNC (AMD).
//!
//! A space that many CPUs run gets a *global* PCID: the same on all CPUs, so that one instruction names its entries
//! everywhere. Spaces below the threshold keep the PCIDs of each CPU and are flushed by interrupts: there are only so
//! many PCIDs.
//!
//! ```text
//!            no global PCID          in transition               settled
//! tag        0                       PCID + TRANSITION           PCID
//! CPUs use   their own PCIDs         either                      the global one
//! a flush    generation, targets,    the same, and INVLPGB,      fence, INVLPGB, TLBSYNC:
//!            wait                    TLBSYNC                     no shared store, no interrupt
//! ```
//!
//! The tag goes from left to right only, and a space keeps its PCID for life. A promotion is one ordinary request: see
//! `promote`.

mod courier;
mod flush;
mod home;
mod operand;
mod pcids;
mod promote;
mod tag;
mod threshold;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use courier::Broadcasting;
pub(super) use home::Home;
pub use operand::{Invlpgb, InvlpgbFlags};
pub(super) use pcids::GLOBAL_PCIDS;
use pcids::GlobalPcids;
pub use pcids::PcidUse;
pub use promote::GlobalError;
pub(super) use tag::Tag;

use super::Config;
use crate::atomic::const_unless_loom;

/// What broadcasting needs: the global PCIDs and the policy. About 1.5 KiB; only couriers that broadcast have it.
#[derive(Debug)]
pub struct Broadcast {
    /// Written once, before any CPU is online: the largest count of extra pages in the low half, the base threshold
    /// above.
    policy: AtomicU64,
    pcids: GlobalPcids,
}

impl Broadcast {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            Self {
                policy: AtomicU64::new(0),
                pcids: GlobalPcids::new(),
            }
        }
    }

    /// Called once, before any CPU is online.
    pub(super) fn configure(&self, config: &Config) {
        let extra = u64::from(config.features().invlpgb.unwrap_or(0));
        let above = u64::from(config.broadcast_above_cpus());
        self.policy.store(extra | above << 32, Relaxed);
        // Without PCIDs there is nothing to give: then only the kernel's mappings are broadcast.
        let pcids = if config.has_pcid() {
            config.global_pcid_count()
        } else {
            0
        };
        self.pcids.configure(pcids);
    }

    /// The largest count of extra pages of one instruction.
    #[inline(always)]
    fn extra(&self) -> u16 {
        self.policy.load(Relaxed) as u16
    }

    /// A space that more CPUs than this run gets a global PCID.
    #[inline]
    fn threshold(&self) -> u64 {
        let (available, total) = self.pcids.available();
        threshold::threshold(self.policy.load(Relaxed) >> 32, available, total)
    }

    #[cfg(all(feature = "_sim", not(loom)))]
    pub(super) fn words(&self, name: crate::inspect::Name<'_>) {
        self.pcids.words_by_name(name);
    }
}
