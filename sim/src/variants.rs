//! The broken variants of the protocol, and what catches each.

use shootdown::variant::Broken;

use crate::scenario::BackendKind;

/// What catches a broken variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caught {
    /// The simulated machine, on these backends.
    Simulator(&'static [BackendKind]),
    /// loom: the machine's memory model does not show the difference, for the reason given.
    Loom(&'static str),
}

const X86: &[BackendKind] = &[BackendKind::Ipi, BackendKind::ConcurrentIpi];
const ARM: &[BackendKind] = &[
    BackendKind::Broadcast,
    BackendKind::ActiveCpu,
    BackendKind::Local,
];
const SPARING: &[BackendKind] = &[BackendKind::ActiveCpu, BackendKind::Local];
const LOCAL: &[BackendKind] = &[BackendKind::Local];
/// Those that spare CPUs first: the replay is one of theirs.
const LOCAL_FIRST: &[BackendKind] = &[
    BackendKind::Local,
    BackendKind::ActiveCpu,
    BackendKind::Broadcast,
];
const ACTIVE_CPU: &[BackendKind] = &[BackendKind::ActiveCpu];
const ALL: &[BackendKind] = &BackendKind::ALL;

use Caught::{Loom, Simulator};

/// Every variant, and what catches it.
pub const VARIANTS: &[(Broken, Caught)] = &[
    (Broken::SkipFlush, Simulator(ALL)),
    (Broken::SkipLocal, Simulator(X86)),
    (
        Broken::NoFlushBarrier,
        Loom("the barrier follows a locked instruction, which on x86 is one"),
    ),
    (Broken::NoSwitchBarrier, Simulator(ALL)),
    (Broken::NoServeBarrier, Simulator(X86)),
    (Broken::NoPublish, Simulator(X86)),
    (Broken::GenerationReadLate, Simulator(X86)),
    (Broken::AckBeforeFlush, Simulator(X86)),
    (Broken::AckBeforeCr3, Simulator(X86)),
    (Broken::MaskClearedEarly, Simulator(X86)),
    (Broken::TrimLoaded, Simulator(X86)),
    (Broken::TrimPostedLate, Simulator(X86)),
    (Broken::LazySkippedFreed, Simulator(X86)),
    (Broken::LazyStays, Simulator(X86)),
    (Broken::LazyLeaveNoCompare, Simulator(X86)),
    (Broken::NoLazyBarrier, Simulator(X86)),
    (Broken::SwitchingSkipped, Simulator(X86)),
    (Broken::SwitchingDone, Simulator(X86)),
    (Broken::NoGatherMark, Simulator(ALL)),
    (Broken::GatherOverlapIgnored, Simulator(ALL)),
    (Broken::PollUnmasked, Simulator(X86)),
    (Broken::KernelOnePcid, Simulator(X86)),
    (Broken::KernelSkipsIdle, Simulator(X86)),
    (Broken::PartialNotContiguous, Simulator(X86)),
    (Broken::RingTagIgnored, Simulator(X86)),
    (Broken::RingUnclaimed, Simulator(X86)),
    (Broken::PcidSlotKept, Simulator(X86)),
    (Broken::NmiDuringSwitch, Simulator(X86)),
    (Broken::RangeShort, Simulator(ALL)),
    (Broken::OnlineNoFlush, Simulator(ALL)),
    (Broken::OnlineFlushFirst, Simulator(X86)),
    (Broken::RetireLazyKept, Simulator(X86)),
    (Broken::RetireSwitchingGone, Simulator(X86)),
    (Broken::RetireTrimKept, Simulator(X86)),
    (Broken::BatchLastOnly, Simulator(X86)),
    (Broken::NoWait, Simulator(X86)),
    (Broken::NoDsbBefore, Simulator(ARM)),
    (Broken::NoDsbAfter, Simulator(ARM)),
    (Broken::DsbWrongDomain, Simulator(ARM)),
    (Broken::TlbiLocal, Simulator(ARM)),
    (Broken::NoIsbKernel, Simulator(ARM)),
    (Broken::NoIsbSwitch, Simulator(ARM)),
    (Broken::TlbiLeafForTable, Simulator(ARM)),
    (Broken::RetireUnflushed, Simulator(ARM)),
    (Broken::RolloverNoPendingFlush, Simulator(ARM)),
    (Broken::RolloverForgetsReserved, Simulator(ARM)),
    (Broken::AsidReadEarly, Simulator(ARM)),
    (Broken::NoActiveBarrier, Simulator(SPARING)),
    (Broken::NoStaleBarrier, Simulator(LOCAL)),
    (Broken::MarksBeforeStores, Simulator(LOCAL)),
    (Broken::StaleNotMarked, Simulator(LOCAL)),
    (Broken::StaleTestedEarly, Simulator(LOCAL)),
    (Broken::StaleFlushedLate, Simulator(LOCAL)),
    (Broken::FreedTablesLocal, Simulator(LOCAL)),
    (Broken::CountedOutEarly, Simulator(LOCAL)),
    (Broken::WrongLevelHint, Simulator(ARM)),
    (Broken::TlbiWrongAsid, Simulator(ARM)),
    (Broken::ActiveReadEarly, Simulator(ACTIVE_CPU)),
    (Broken::CnpIgnored, Simulator(LOCAL_FIRST)),
    (Broken::GenerationsWrap, Simulator(ARM)),
    (Broken::NoRepeat, Simulator(ARM)),
    (Broken::NoShareBarrier, Simulator(SPARING)),
    (
        Broken::NoRetireBarrier,
        Loom(
            "the barrier follows two read-modify-writes of one word: the second, an acquire, reads what the first has stored, \
             which on arm64 comes before all later loads (Arm ARM, atomic-ordered-before)",
        ),
    ),
];

/// The variant of a name.
pub fn by_name(name: &str) -> Option<Broken> {
    VARIANTS
        .iter()
        .map(|(variant, _)| *variant)
        .find(|variant| format!("{variant:?}") == name)
}

/// The variants that the simulator must catch on `backend`.
pub fn on(backend: BackendKind) -> impl Iterator<Item = Broken> {
    VARIANTS
        .iter()
        .filter_map(move |(variant, caught)| match caught {
            Simulator(backends) if backends.contains(&backend) => Some(*variant),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_in_the_table_once() {
        let mut all: Vec<String> = Broken::ALL
            .iter()
            .map(|variant| format!("{variant:?}"))
            .collect();
        let mut listed: Vec<String> = VARIANTS
            .iter()
            .map(|(variant, _)| format!("{variant:?}"))
            .collect();
        all.sort();
        listed.sort();
        assert_eq!(all, listed);
    }
}
