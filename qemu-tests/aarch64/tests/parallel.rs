//! All CPUs flush at the same time.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use flush_cases::race::{Interrupts, Reads, race};
    use flush_cases::rig::Rig;
    use shootdown::aarch64::skip_invalidations;

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
