//! Hunts: how many runs it takes until a broken variant is caught.

use shootdown::variant::Broken;

use crate::{
    campaign::{Plan, campaign},
    scenario::{BackendKind, Failure, Spec},
};

/// A hunt with this many runs has failed.
pub const LIMIT: u64 = 20_000;
/// So many hunts, each from a seed of its own.
pub const SEEDS: u64 = 10;

/// What came of the hunts for one variant.
#[derive(Clone, Debug)]
pub struct Bag {
    /// The variant.
    pub variant: Broken,
    /// The number of runs of each hunt, in ascending order; `None` where it was not caught.
    pub runs: Vec<Option<u64>>,
    /// The first run that caught it.
    pub first: Option<(Spec, Failure)>,
}

impl Bag {
    /// The middle one of the numbers of runs; `None` if it was not caught.
    pub fn median(&self) -> Option<u64> {
        let (low, high) = (
            self.runs[(self.runs.len() - 1) / 2],
            self.runs[self.runs.len() / 2],
        );
        Some(low?.midpoint(high?))
    }
}

/// Hunts one variant from `seeds` seeds.
pub fn hunt(backend: BackendKind, variant: Broken, seeds: u64, limit: u64) -> Bag {
    let mut bag = Bag {
        variant,
        runs: Vec::new(),
        first: None,
    };
    for number in 0..seeds {
        let seed = (number + 1) * 1_000_000_007;
        let plan = Plan {
            backend,
            cpus: None,
            seed,
            runs: limit,
            broken: Some(variant),
        };
        let failure = campaign(&plan, |_| {}).failure;
        bag.runs
            .push(failure.as_ref().map(|(spec, _)| spec.seed - seed + 1));
        if bag.first.is_none() {
            bag.first = failure;
        }
        // Once most hunts have failed, the median can't be a number any more.
        let failed = bag.runs.iter().filter(|runs| runs.is_none()).count() as u64;
        if failed > seeds / 2 {
            break;
        }
    }
    bag.runs.sort_by_key(|runs| runs.unwrap_or(u64::MAX));
    bag
}
