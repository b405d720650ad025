//! arm64: what few runs meet, and none may miss: CPUs whose TLB entries others may use, and the last ASID generation.
#![cfg(not(loom))]

use shootdown::variant::Broken;
use shootdown_sim::{
    BackendKind,
    campaign::{Plan, Summary, campaign},
};

const BACKENDS: [BackendKind; 3] = [
    BackendKind::Broadcast,
    BackendKind::ActiveCpu,
    BackendKind::Local,
];

fn runs(backend: BackendKind, broken: Option<Broken>) -> Summary {
    let plan = Plan {
        backend,
        cpus: None,
        seed: 11_000_000,
        runs: 1000,
        broken,
    };
    campaign(&plan, |_| {})
}

fn failure(summary: &Summary) -> Option<String> {
    let (spec, failure) = summary.failure.as_ref()?;
    Some(format!("seed {}: {}", spec.seed, failure.message))
}

/// Each CPU that comes online with CnP set is refused, and comes without.
#[test]
fn cpus_whose_entries_others_may_use_are_refused() {
    for backend in BACKENDS {
        let summary = runs(backend, None);
        assert_eq!(failure(&summary), None, "{backend:?}");
        assert!(summary.tally.refused > 0, "{backend:?}");
    }
}

/// They are refused for a reason: taken online, some CPU uses what another one has cached.
#[test]
fn cpus_whose_entries_others_may_use_break_the_contract() {
    for backend in BACKENDS {
        let summary = runs(backend, Some(Broken::CnpIgnored));
        assert!(failure(&summary).is_some(), "{backend:?}");
        assert_eq!(summary.tally.refused, 0, "{backend:?}");
    }
}

/// At the last ASID generation the allocator stops; no two spaces have had one ASID until then.
#[test]
fn the_last_generation_is_the_last() {
    for backend in BACKENDS {
        let summary = runs(backend, None);
        assert_eq!(failure(&summary), None, "{backend:?}");
        assert!(summary.tally.spent > 0, "{backend:?}");
    }
}

#[test]
fn generations_that_begin_anew_break_the_contract() {
    for backend in BACKENDS {
        let summary = runs(backend, Some(Broken::GenerationsWrap));
        assert!(failure(&summary).is_some(), "{backend:?}");
    }
}
