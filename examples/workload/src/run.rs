//! The workloads, one after the other, and what they amount to.

use shootdown::TlbFlusher;

use crate::{
    class::Class, machine::Machine, options::Options, process, report::Report, reuse,
    shadow::Epochs, tally::Tally, thrash,
};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The numbers.
    pub report: Report,
    /// Stale reads on another CPU than the one that had changed the page.
    pub stale_elsewhere: u64,
}

/// Runs the workloads `options.rounds` times, on CPU 0, with the other CPUs waiting for work.
///
/// # Panics
/// When a canary is damaged, memory runs out, or the flusher refuses something: a fault of the kernel or the crate.
pub fn run<M: Machine>(machine: &M, backend: &'static str, options: &Options) -> Outcome {
    let (epochs, tally) = (Epochs::new(), Tally::new());
    run_rounds(machine, &epochs, &tally, options);
    outcome(machine, backend, &tally)
}

/// Runs processes of one thread, two, and many, and after them what [`run`] runs. The outcome is of all together.
///
/// # Panics
/// As [`run`].
pub fn run_with_processes<M: Machine>(
    machine: &M,
    backend: &'static str,
    options: &Options,
) -> (Outcome, [Class; 3]) {
    let (epochs, tally) = (Epochs::new(), Tally::new());
    let classes = process::run(machine, &epochs, &tally, options.seed);
    run_rounds(machine, &epochs, &tally, options);
    (outcome(machine, backend, &tally), classes)
}

pub(crate) fn run_rounds<M: Machine>(
    machine: &M,
    epochs: &Epochs,
    tally: &Tally,
    options: &Options,
) {
    for round in 0..options.rounds {
        let seed = options.seed.wrapping_add(u64::from(round) << 32);
        reuse::run(machine, epochs, tally, seed);
        thrash::run(machine, epochs, tally, seed);
    }
}

pub(crate) fn outcome<M: Machine>(machine: &M, backend: &'static str, tally: &Tally) -> Outcome {
    let counters = machine.tlb().counters();
    let report = Report {
        arch: M::ARCH,
        backend,
        cpus: machine.cpus() as u64,
        flushes: counters.flushes,
        remote: counters.remote,
        pages: counters.pages,
        reads: tally.reads(),
        migrations: tally.migrations(),
        stale: tally.stale(),
        ipis_sent: counters.ipis_sent,
        ipis_elided: counters.ipis_elided(),
        by_host: counters.elided_by_host,
        broadcasts: counters.broadcasts,
        local: counters.local,
        full: counters.full,
    };
    Outcome {
        report,
        stale_elsewhere: tally.stale_elsewhere(),
    }
}
