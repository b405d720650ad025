//! Campaigns: many runs on all of the host's CPUs.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread::ScopedJoinHandle,
    time::{Duration, Instant},
};

use shootdown::{coverage::Branch, variant::Broken};

use crate::{
    machine::{Tally, interrupts::has_panicked},
    scenario::{BackendKind, Failure, Spec, run},
};

/// Which runs.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The flusher.
    pub backend: BackendKind,
    /// How many CPUs; 2 to 8, by the seed, if it is not said.
    pub cpus: Option<usize>,
    /// The first seed.
    pub seed: u64,
    /// How many runs.
    pub runs: u64,
    /// The way in which the protocol is broken, if any.
    pub broken: Option<Broken>,
}

impl Plan {
    /// The run of one seed.
    pub fn spec(&self, seed: u64) -> Spec {
        let cpus = self.cpus.unwrap_or(2 + (seed % 7) as usize);
        let mut spec = Spec::new(self.backend, cpus, seed);
        spec.broken = self.broken;
        spec
    }
}

/// What came of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Runs that were made.
    pub runs: u64,
    /// What happened in them.
    pub tally: Tally,
    /// The branches of the protocol that they took.
    pub coverage: BTreeMap<Branch, u64>,
    /// The least number of flushes in a run that kept the contract.
    pub least_flushes: Option<u64>,
    /// The failing run with the lowest seed.
    pub failure: Option<(Spec, Failure)>,
    /// How long it took.
    pub time: Duration,
}

impl Summary {
    fn take(&mut self, coverage: BTreeMap<Branch, u64>) {
        for (branch, count) in coverage {
            *self.coverage.entry(branch).or_default() += count;
        }
    }

    fn join(&mut self, other: Self) {
        self.runs += other.runs;
        self.tally.add(&other.tally);
        self.take(other.coverage);
        self.least_flushes = match (self.least_flushes, other.least_flushes) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        let seed = |failure: &Option<(Spec, Failure)>| {
            failure.as_ref().map_or(u64::MAX, |(spec, _)| spec.seed)
        };
        if seed(&other.failure) < seed(&self.failure) {
            self.failure = other.failure;
        }
    }
}

/// Makes the runs of a plan until one fails. The failing run that is reported is always the one with the lowest seed,
/// however many host CPUs there are. `progress` is called now and then with the number of runs so far.
pub fn campaign(plan: &Plan, progress: impl Fn(u64) + Sync) -> Summary {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut summary = Summary::default();
    // Ends once nothing is left to do, or when the thread has caught a panic: then a fresh one goes on, see `run`.
    let work = || {
        let mut own = Summary::default();
        while !has_panicked() {
            // Small portions: every seed below a failing one is tried.
            let first = next.fetch_add(16, Relaxed);
            if first >= plan.runs || failed.load(Relaxed) {
                return (own, true);
            }
            for number in first..(first + 16).min(plan.runs) {
                let spec = plan.spec(plan.seed.wrapping_add(number));
                let outcome = run(&spec);
                own.runs += 1;
                own.tally.add(&outcome.tally);
                own.take(outcome.coverage);
                match outcome.failure {
                    // Such a run was cut short.
                    None if outcome.tally.cut + outcome.tally.spent != 0 => {}
                    None => {
                        let flushes = outcome.tally.flushes;
                        own.least_flushes = Some(
                            own.least_flushes
                                .map_or(flushes, |least| least.min(flushes)),
                        );
                    }
                    Some(failure) => {
                        own.failure = Some((spec, failure));
                        failed.store(true, Relaxed);
                        break;
                    }
                }
            }
            progress(first);
        }
        (own, false)
    };
    let worker = || {
        let mut sum = Summary::default();
        loop {
            let (own, done) = std::thread::scope(|scope| joined(scope.spawn(work)));
            sum.join(own);
            if done {
                return sum;
            }
        }
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        for handle in handles {
            summary.join(joined(handle));
        }
    });
    summary.time = start.elapsed();
    summary
}

/// What a thread gives, or its panic.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Branches that runs of the backend can take and that none took.
pub fn never_taken(backend: BackendKind, coverage: &BTreeMap<Branch, u64>) -> Vec<Branch> {
    let can = Branch::ALL
        .iter()
        .copied()
        .filter(|branch| backend.can_take(*branch));
    can.filter(|branch| !coverage.contains_key(branch))
        .collect()
}
