//! The workloads of the example kernels, shortened.

use shootdown_workload::{Options, run};
use x86_kernel::machine::Pc;

use crate::{Backend, bring_up, observe};

/// Runs both workloads for one round. If the invalidation instruction is left out (`hollow`), reads on other CPUs than
/// the one that unmapped must notice; else none may be stale.
///
/// # Panics
/// When it is otherwise.
pub fn workloads<B: Backend>(hollow: bool) {
    let tlb = bring_up::<B>();
    observe::hollow(hollow);
    let outcome = run(
        &Pc(tlb),
        "test",
        &Options {
            rounds: 1,
            ..Options::default()
        },
    );
    observe::hollow(false);
    assert!(
        outcome.report.remote > 0 && outcome.report.migrations > 0,
        "nothing was put to the test"
    );
    if hollow {
        assert!(outcome.stale_elsewhere > 0, "nobody noticed");
    } else {
        assert_eq!(outcome.report.stale, 0);
    }
}
