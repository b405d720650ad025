//! A flush costs by the CPUs that hold the space, not by the machine's.

use shootdown::x86_64::ConcurrentIpi;

use super::shootdown::{Cost, means_on};
use crate::timed::{costs::Costs, platform::TimedPlatform, x86::TimedX86};

/// A one-page flush of a space that `holders` CPUs use, on machines of 8, 64, 512 and 4096 CPUs.
pub fn flush(costs: Costs, holders: usize) -> [(usize, Cost); 4] {
    [
        (8, on::<8, 1>(costs, holders)),
        (64, on::<64, 1>(costs, holders)),
        (512, on::<512, 8>(costs, holders)),
        (4096, on::<4096, 64>(costs, holders)),
    ]
}

fn on<const CPUS: usize, const W: usize>(costs: Costs, holders: usize) -> Cost {
    means_on::<ConcurrentIpi<TimedPlatform<CPUS>, TimedX86, W>, W>(costs, CPUS, holders, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_does_not_matter() {
        let costs = flush(Costs::XEON, 4);
        let (_, small) = costs[0];
        for (cpus, cost) in costs {
            assert!(
                cost.latency < 1.2 * small.latency && cost.stolen < 1.2 * small.stolen,
                "{cpus} CPUs: {cost:?} against {small:?}"
            );
        }
    }
}
