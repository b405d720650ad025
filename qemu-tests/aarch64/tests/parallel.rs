//! All CPUs flush at the same time.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use flush_cases::race::{Interrupts, Reads, race};
    use flush_cases::rig::{Rig, TLB};
    use shootdown::aarch64::skip_invalidations;
    use shootdown_examples_aarch64::frames::available;
    use shootdown_examples_aarch64::machine::Virt;
    use shootdown_workload::{Options, Outcome, run};

    #[test]
    fn no_read_is_stale() {
        is_fresh(Interrupts::On);
    }

    #[test]
    fn no_read_is_stale_with_interrupts_off_on_all_cpus() {
        is_fresh(Interrupts::Off);
    }

    #[test]
    fn reads_are_stale_without_the_instruction() {
        is_stale(Interrupts::On);
    }

    #[test]
    fn reads_are_stale_with_interrupts_off_on_all_cpus_without_the_instruction() {
        is_stale(Interrupts::Off);
    }

    #[test]
    fn workloads_read_nothing_stale() {
        let outcome = workloads(Rig::start());
        assert!(outcome.report.reads > 0 && outcome.report.migrations > 0);
        assert_eq!(outcome.report.stale, 0);
    }

    #[test]
    fn workloads_read_stale_without_the_instruction() {
        let rig = Rig::start();
        skip_invalidations(true);
        let outcome = workloads(rig);
        assert!(outcome.stale_elsewhere > 0, "{outcome:?}");
    }

    fn workloads(rig: Rig) -> Outcome {
        let before = available();
        let options = Options {
            rounds: 1,
            ..Options::default()
        };
        let outcome = run(&Virt::new(rig.into_crew(), &TLB), "broadcast", &options);
        assert_eq!(available(), before, "frames leaked");
        outcome
    }

    fn is_fresh(interrupts: Interrupts) {
        let enough = |reads: &Reads| reads.mapped_elsewhere.load(Relaxed) > 100;
        let reads = race(&Rig::start(), interrupts, enough);
        assert!(
            reads.mapped_elsewhere.load(Relaxed) > 0,
            "no CPU saw another one's page: {reads:?}"
        );
        assert_eq!(reads.stale_here.load(Relaxed), 0, "{reads:?}");
        assert_eq!(reads.stale_elsewhere.load(Relaxed), 0, "{reads:?}");
    }

    fn is_stale(interrupts: Interrupts) {
        let rig = Rig::start();
        skip_invalidations(true);
        let enough = |reads: &Reads| reads.stale_elsewhere.load(Relaxed) > 0;
        let reads = race(&rig, interrupts, enough);
        assert!(reads.stale_here.load(Relaxed) > 0, "{reads:?}");
        assert!(reads.stale_elsewhere.load(Relaxed) > 0, "{reads:?}");
    }
}
