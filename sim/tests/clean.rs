//! A short campaign on each backend: the contract is kept.
#![cfg(not(loom))]

use shootdown_sim::{
    BackendKind,
    campaign::{Plan, campaign},
};

#[test]
fn the_contract_is_kept() {
    for backend in BackendKind::ALL {
        let plan = Plan {
            backend,
            cpus: None,
            seed: 7_000_000,
            runs: 2000,
            broken: None,
        };
        let summary = campaign(&plan, |_| {});
        let failure = summary
            .failure
            .map(|(spec, failure)| format!("seed {}: {}", spec.seed, failure.message));
        assert_eq!(failure, None, "{backend:?}");
        assert!(
            summary.least_flushes.is_some_and(|least| least >= 20),
            "{backend:?}"
        );
    }
}
