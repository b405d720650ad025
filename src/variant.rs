//! Broken variants: one-line edits of the shipping code that a test can switch on, to see that it is caught.
//!
//! In a normal build `broken` is the constant `false` and the compiler removes each site. Under loom or with the
//! internal feature `_sim` the variant is chosen per thread.

macro_rules! variants {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Names one way to break the protocol. Each variant is caught by the simulated machine or by loom; which, is
        /// listed in `sim/`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(not(any(loom, feature = "_sim")), allow(dead_code))]
        #[non_exhaustive]
        pub enum Broken { $($(#[$meta])* $name,)* }

        #[cfg(any(loom, feature = "_sim"))]
        impl Broken {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

variants! {
    /// The receiver acknowledges without flushing.
    SkipFlush,
    /// The initiator does not flush its own TLB.
    SkipLocal,
    /// No full barrier between the page-table change and the selection of targets (initiator).
    NoFlushBarrier,
    /// No full barrier between publishing SWITCHING and reading the generation, where the mask bit was set.
    NoSwitchBarrier,
    /// No full barrier between taking the request and reading generations (receiver).
    NoServeBarrier,
    /// Requests are not published before the interrupt is sent.
    NoPublish,
    /// The receiver reads the generation after flushing.
    GenerationReadLate,
    /// The generation is published before the flush.
    AckBeforeFlush,
    /// The switch publishes the new generation before loading CR3.
    AckBeforeCr3,
    /// A space switched away from loses its mask bit before it is unloaded.
    MaskClearedEarly,
    /// Trimming clears the bit of a CPU that runs the space.
    TrimLoaded,
    /// A lazy CPU is skipped although tables were freed.
    LazySkippedFreed,
    /// A lazy CPU serves freed tables by flushing nothing and staying.
    LazyStays,
    /// Leaving lazy mode does not compare generations.
    LazyLeaveNoCompare,
    /// No full barrier between leaving lazy mode and reading the generation.
    NoLazyBarrier,
    /// SWITCHING is not a target.
    SwitchingSkipped,
    /// The waiter takes SWITCHING for done.
    SwitchingDone,
    /// A gather does not mark its space.
    NoGatherMark,
    /// An overlapping gather flushes only what it cleared itself.
    GatherOverlapIgnored,
    /// `poll` serves with interrupts on, so that a nested handler is overtaken by the outer one.
    PollUnmasked,
    /// A kernel flush reaches the current PCID only.
    KernelOnePcid,
    /// A kernel flush skips idle CPUs.
    KernelSkipsIdle,
    /// A partial flush for a generation that is not the next one.
    PartialNotContiguous,
    /// A ring entry is taken without looking at its generation.
    RingTagIgnored,
    /// A ring entry is written without claiming it.
    RingUnclaimed,
    /// A PCID slot's old entries are kept when it is given to another space.
    PcidSlotKept,
    /// `user_access_ok` says yes during a switch.
    NmiDuringSwitch,
    /// The last page of a range is left out.
    RangeShort,
    /// A CPU that comes online does not flush.
    OnlineNoFlush,
    /// A CPU that comes online flushes before it is visible.
    OnlineFlushFirst,
    /// Retire does not wait for lazy CPUs.
    RetireLazyKept,
    /// Retire takes a CPU between two spaces for gone.
    RetireSwitchingGone,
    /// Retire leaves trim requests, which hold the space's address, in mailboxes.
    RetireTrimKept,
    /// A trim request is posted without a look at retirement.
    TrimPostedLate,
    /// arm64: no full barrier between retirement and the look at what CPUs have loaded.
    NoRetireBarrier,
    /// The batch forgets all members but the last.
    BatchLastOnly,
    /// The initiator does not wait.
    NoWait,
    /// arm64: no DSB between the page-table store and the TLBI.
    NoDsbBefore,
    /// arm64: no DSB after the TLBI.
    NoDsbAfter,
    /// arm64: the DSB after a broadcast TLBI covers this CPU only.
    DsbWrongDomain,
    /// arm64: the TLBI stays on this CPU.
    TlbiLocal,
    /// arm64: no ISB after a kernel flush.
    NoIsbKernel,
    /// arm64: no ISB after the write of TTBR0.
    NoIsbSwitch,
    /// arm64: a freed table is flushed by a last-level TLBI.
    TlbiLeafForTable,
    /// arm64: a retired space's entries stay.
    RetireUnflushed,
    /// arm64: a CPU does not flush after a rollover.
    RolloverNoPendingFlush,
    /// arm64: a rollover gives away the ASIDs that CPUs run.
    RolloverForgetsReserved,
    /// arm64: the ASID is read before the barrier that makes page-table stores visible.
    AsidReadEarly,
    /// arm64: no barrier between counting a CPU in and looking at its stale bit.
    NoActiveBarrier,
    /// arm64: no barrier between marking others stale and looking at who is active.
    NoStaleBarrier,
    /// arm64: stale CPUs are marked before the page-table stores are visible.
    MarksBeforeStores,
    /// arm64: others are not marked stale by a local flush.
    StaleNotMarked,
    /// arm64: the stale bit is tested before the CPU is counted in.
    StaleTestedEarly,
    /// arm64: stale entries are dropped after the ASID was loaded.
    StaleFlushedLate,
    /// arm64: freed tables are flushed locally.
    FreedTablesLocal,
    /// arm64: a CPU is counted out before it has left the space.
    CountedOutEarly,
    /// arm64: a level hint for a range whose entries had several levels.
    WrongLevelHint,
    /// arm64: a TLBI with the wrong ASID.
    TlbiWrongAsid,
    /// arm64: who has loaded the space is read before the page-table stores are visible.
    ActiveReadEarly,
    /// arm64: a CPU whose entries others may use (CnP) comes online, and lets them use those of its spaces.
    CnpIgnored,
    /// arm64: the ASID generations begin anew after the last one.
    GenerationsWrap,
    /// arm64: invalidations are not repeated where a CPU needs that.
    NoRepeat,
    /// arm64: no barrier between marking a space as shared and the start of the device.
    NoShareBarrier,
}

#[cfg(any(loom, feature = "_sim"))]
mod chosen {
    extern crate std;

    use core::cell::Cell;

    use super::Broken;

    std::thread_local! {
        static CHOSEN: Cell<Option<Broken>> = const { Cell::new(None) };
    }

    /// Breaks the protocol in the given way for this thread, or mends it.
    pub fn break_protocol(variant: Option<Broken>) {
        CHOSEN.set(variant);
    }

    pub(crate) fn broken(variant: Broken) -> bool {
        CHOSEN.get() == Some(variant)
    }
}

#[cfg(any(loom, feature = "_sim"))]
pub use chosen::break_protocol;
#[cfg(any(loom, feature = "_sim"))]
pub(crate) use chosen::broken;

#[cfg(not(any(loom, feature = "_sim")))]
#[inline(always)]
pub(crate) const fn broken(_: Broken) -> bool {
    false
}
