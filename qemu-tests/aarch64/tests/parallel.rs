//! All CPUs flush at the same time.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use flush_cases::backend::Backend;
    use flush_cases::race::{Interrupts, Reads, race};
    use flush_cases::rig::Rig;
    use shootdown::aarch64::{ActiveCpu, Broadcast, Local, skip_invalidations};
    use shootdown_examples_aarch64::frames::available;
    use shootdown_examples_aarch64::machine::Virt;
    use shootdown_examples_aarch64::platform::Kernel;
    use shootdown_workload::{Class, Options, Outcome, run_with_processes};

    #[test]
    fn no_read_is_stale() {
        is_fresh::<Broadcast<Kernel>>(Interrupts::On);
    }

    #[test]
    fn no_read_is_stale_local() {
        is_fresh::<Local<Kernel>>(Interrupts::On);
    }

    #[test]
    fn no_read_is_stale_active_cpu() {
        is_fresh::<ActiveCpu<Kernel>>(Interrupts::On);
    }

    #[test]
    fn no_read_is_stale_with_interrupts_off_on_all_cpus() {
        is_fresh::<Broadcast<Kernel>>(Interrupts::Off);
    }

    #[test]
    fn no_read_is_stale_with_interrupts_off_on_all_cpus_local() {
        is_fresh::<Local<Kernel>>(Interrupts::Off);
    }

    #[test]
    fn reads_are_stale_without_the_instruction() {
        is_stale::<Broadcast<Kernel>>(Interrupts::On);
    }

    #[test]
    fn reads_are_stale_without_the_instruction_local() {
        is_stale::<Local<Kernel>>(Interrupts::On);
    }

    #[test]
    fn reads_are_stale_with_interrupts_off_on_all_cpus_without_the_instruction() {
        is_stale::<Broadcast<Kernel>>(Interrupts::Off);
    }

    #[test]
    fn workloads_read_nothing_stale() {
        let [single, ..] = workloads_are_fresh::<Broadcast<Kernel>>();
        assert_eq!((single.seen.local, single.seen.elided), (0, 0));
    }

    #[test]
    fn workloads_read_nothing_stale_local() {
        let [single, two, many] = workloads_are_fresh::<Local<Kernel>>();
        assert_eq!(single.seen.remote, single.tables_freed);
        assert!(single.seen.late > single.first_loads);
        assert!(two.seen.local > 0);
        for class in [single, two, many] {
            assert_eq!(class.seen.local_tables, 0, "{class:?}");
        }
    }

    #[test]
    fn workloads_read_nothing_stale_active_cpu() {
        let [_, _, many] = workloads_are_fresh::<ActiveCpu<Kernel>>();
        assert!(many.seen.remote > 0);
    }

    #[test]
    fn workloads_read_stale_without_the_instruction() {
        workloads_are_stale::<Broadcast<Kernel>>();
    }

    #[test]
    fn workloads_read_stale_without_the_instruction_local() {
        workloads_are_stale::<Local<Kernel>>();
    }

    fn workloads_are_fresh<B: Backend>() -> [Class; 3] {
        let (outcome, classes) = workloads::<B>(Rig::start::<B>());
        assert!(outcome.report.reads > 0 && outcome.report.migrations > 0);
        assert_eq!(outcome.report.stale, 0);
        classes
    }

    fn workloads_are_stale<B: Backend>() {
        let rig = Rig::start::<B>();
        skip_invalidations(true);
        let (outcome, [_, _, many]) = workloads::<B>(rig);
        assert!(outcome.stale_elsewhere > 0, "{outcome:?}");
        assert!(many.seen.stale_elsewhere > 0, "{many:?}");
    }

    fn workloads<B: Backend>(rig: Rig) -> (Outcome, [Class; 3]) {
        let before = available();
        let options = Options {
            rounds: 1,
            ..Options::default()
        };
        let result = run_with_processes(&Virt::new(rig.into_crew(), B::TLB), "test", &options);
        assert_eq!(available(), before, "frames leaked");
        result
    }

    fn is_fresh<B: Backend>(interrupts: Interrupts) {
        let enough = |reads: &Reads| reads.mapped_elsewhere.load(Relaxed) > 100;
        let reads = race::<B>(&Rig::start::<B>(), interrupts, enough);
        assert!(
            reads.mapped_elsewhere.load(Relaxed) > 0,
            "no CPU saw another one's page: {reads:?}"
        );
        assert_eq!(reads.stale_here.load(Relaxed), 0, "{reads:?}");
        assert_eq!(reads.stale_elsewhere.load(Relaxed), 0, "{reads:?}");
    }

    fn is_stale<B: Backend>(interrupts: Interrupts) {
        let rig = Rig::start::<B>();
        skip_invalidations(true);
        let enough = |reads: &Reads| reads.stale_elsewhere.load(Relaxed) > 0;
        let reads = race::<B>(&rig, interrupts, enough);
        assert!(reads.stale_here.load(Relaxed) > 0, "{reads:?}");
        assert!(reads.stale_elsewhere.load(Relaxed) > 0, "{reads:?}");
    }
}
