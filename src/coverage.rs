//! Which branches of the protocol a simulated run has taken. A clean run proves nothing if it did nothing.
//!
//! In a normal build `took` is empty.

macro_rules! branches {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// A branch of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(not(feature = "_sim"), allow(dead_code))]
        #[non_exhaustive]
        pub enum Branch { $($(#[$meta])* $name,)* }

        impl Branch {
            /// All branches.
            #[cfg(feature = "_sim")]
            pub const ALL: &'static [Branch] = &[$(Branch::$name,)*];
        }
    };
}

branches! {
    /// A CPU in the mask runs the space.
    TargetLoaded,
    /// A CPU in the mask is between two spaces.
    TargetSwitching,
    /// A CPU in the mask is lazy and was skipped.
    TargetLazySkipped,
    /// A CPU in the mask is lazy and was interrupted.
    TargetLazyReached,
    /// A CPU in the mask runs another space.
    TargetAway,
    /// The target's interrupt was already on its way.
    InterruptMerged,
    /// A flush had no remote target.
    NoTarget,
    /// Serve: the space was already up to date.
    ServedNothing,
    /// Serve: page by page.
    ServedPartial,
    /// Serve: two generations, both page by page.
    ServedTwo,
    /// Serve: everything of the space.
    ServedFull,
    /// Serve: the ring did not hold a generation that was needed.
    RingMissed,
    /// A ring entry could not be claimed.
    RingContended,
    /// Serve: a lazy CPU left its space.
    LazyUnloaded,
    /// Serve: kernel ranges page by page.
    KernelPartial,
    /// Serve: everything, globals included.
    KernelFull,
    /// A waiter served a request addressed to itself.
    ServedWhileWaiting,
    /// Switch: the space's PCID was still current, nothing to flush.
    SwitchFresh,
    /// Switch: the space's PCID was behind.
    SwitchBehind,
    /// Switch: another space's PCID slot was taken over.
    SwitchSlotTaken,
    /// Switch: without PCIDs.
    SwitchPlain,
    /// Switch: the mask bit was set, so an explicit barrier was needed.
    SwitchBitSet,
    /// Switch: the mask bit was not yet set.
    SwitchBitClear,
    /// Switch: the space was loaded already.
    SwitchSame,
    /// Lazy mode ended for the same space, which was up to date.
    LazyLeftFresh,
    /// Lazy mode ended for the same space, which was behind.
    LazyLeftBehind,
    /// A CPU took a trim request.
    Trimmed,
    /// A trim request found the space loaded again.
    TrimRefused,
    /// Retire found a CPU that runs the space.
    RetireRefused,
    /// Retire unloaded a lazy CPU.
    RetireUnloaded,
    /// Retire took back a trim request.
    RetireStoleTrim,
    /// A gather that overlapped another one.
    GatherOverlapped,
    /// A CPU came online.
    Online,
    /// A CPU went offline.
    Offline,
    /// INVLPGB: a space with a settled global PCID was flushed.
    SettledFlush,
    /// INVLPGB: a space in transition was flushed in both ways.
    TransitionFlush,
    /// INVLPGB: the kernel's mappings were flushed without an interrupt.
    KernelBroadcast,
    /// INVLPGB: a space got a global PCID.
    Promoted,
    /// INVLPGB: another CPU was promoting the space already.
    PromotionLost,
    /// INVLPGB: no global PCID was left for a space.
    PromotionRefused,
    /// INVLPGB: PCIDs that were given back became free by a flush of everything.
    PcidReset,
    /// INVLPGB: a space in use moved to its global PCID when its CPU served.
    MovedAtServe,
    /// INVLPGB: a switch loaded a global PCID.
    MovedAtSwitch,
    /// KVM: the target was running.
    PreemptedNot,
    /// KVM: a target that was not running was marked.
    PreemptedMarked,
    /// KVM: a target that was not running had been marked before.
    PreemptedMarkedBefore,
    /// KVM: a target came back before it was marked.
    PreemptedCameBack,
    /// KVM: freed tables were left to the flush on entry.
    PreemptedFreed,
    /// A CPU began to wait, and became lazy.
    WaitEntered,
    /// A CPU's wait ended, and it used its space again.
    WaitLeft,
    /// Hyper-V: a whole space, by mask.
    HypervSpace,
    /// Hyper-V: a list of addresses, by mask.
    HypervList,
    /// Hyper-V: a whole space, by a set of banks.
    HypervSpaceEx,
    /// Hyper-V: a list of addresses, by a set of banks.
    HypervListEx,
    /// Hyper-V: the host had left a list unfinished.
    HypervResumed,
    /// Hyper-V: the host refused.
    HypervRefused,
    /// Hyper-V: a target that the call can't name was left to an interrupt.
    HypervUnnamed,
    /// arm64: page by page, last level only.
    TlbiLeaf,
    /// arm64: page by page, all levels.
    TlbiTable,
    /// arm64: a whole ASID.
    TlbiAsid,
    /// arm64: kernel pages.
    TlbiKernel,
    /// arm64: everything.
    TlbiAll,
    /// arm64: by ranges.
    TlbiRange,
    /// arm64: a local flush.
    TlbiLocal,
    /// arm64: no CPU had the space loaded.
    TlbiElided,
    /// arm64: a CPU found its entries stale when it loaded a space.
    StaleFlushed,
    /// The ASID was valid.
    AsidFast,
    /// The ASID allocator's lock was taken.
    AsidSlow,
    /// A CPU flushed after a rollover.
    AsidPendingFlush,
    /// A space kept its ASID over a rollover since a CPU ran it.
    AsidReserved,
    /// The ASIDs ran out.
    AsidRollover,
}

#[cfg(feature = "_sim")]
mod counting {
    extern crate std;

    use core::cell::RefCell;
    use std::collections::BTreeMap;

    use super::Branch;

    std::thread_local! {
        static TAKEN: RefCell<BTreeMap<Branch, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    pub(crate) fn took(branch: Branch) {
        TAKEN.with_borrow_mut(|taken| *taken.entry(branch).or_default() += 1);
    }

    /// Takes this thread's counts, which start again at zero.
    pub fn take_coverage() -> BTreeMap<Branch, u64> {
        TAKEN.take()
    }
}

#[cfg(feature = "_sim")]
pub use counting::take_coverage;
#[cfg(feature = "_sim")]
pub(crate) use counting::took;

#[cfg(not(feature = "_sim"))]
#[inline(always)]
pub(crate) const fn took(_: Branch) {}
