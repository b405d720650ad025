//! CPUs come and go, and flush before the others are there.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use flush_cases::rig::{self, Rig, TLB};
    use flush_cases::{case, page::KernelPage, page::SpacePage};
    use shootdown::aarch64::skip_invalidations;
    use shootdown::{Request, TlbFlusher};
    use shootdown_examples_aarch64::{cpu, platform};

    #[test]
    fn flushes_before_other_cpus_are_online() {
        rig::start_alone();
        let mut page = SpacePage::mapped();
        case::load(&page.space);
        let mut kernel = KernelPage::mapped();
        assert!(page.is_readable() && kernel.is_readable());

        let (page_frame, kernel_frame) = (page.unmap(), kernel.unmap());
        assert!(
            page.is_readable() && kernel.is_readable(),
            "both must be stale"
        );
        TLB.flush(&page.space, Request::range(page.range())).wait();
        assert!(!page.is_readable());
        assert!(
            kernel.is_readable(),
            "a flush of a space leaves the kernel's entries alone"
        );
        TLB.flush_kernel(Request::range(kernel.range())).wait();
        assert!(!kernel.is_readable());
        drop((page_frame, kernel_frame));
        case::unload();
        page.retire();
    }

    #[test]
    fn is_stale_before_other_cpus_are_online_without_the_instruction() {
        rig::start_alone();
        let mut page = SpacePage::mapped();
        case::load(&page.space);
        assert!(page.is_readable());
        let _frame = page.unmap();
        skip_invalidations(true);
        TLB.flush(&page.space, Request::range(page.range())).wait();
        assert!(page.is_readable());
        case::unload();
        page.retire();
    }

    #[test]
    #[should_panic]
    fn a_cpu_that_is_not_online_may_not_flush() {
        TLB.init(platform::config())
            .expect("QEMU's CPUs are served");
        TLB.flush_kernel(Request::all()).wait();
    }

    #[test]
    fn what_a_cpu_saw_before_it_went_offline_is_gone_when_it_is_back() {
        let rig = Rig::start();
        let mut page = SpacePage::mapped();
        let mut kernel = KernelPage::mapped();
        rig.on(1, || {
            case::load(&page.space);
            assert!(page.is_readable() && kernel.is_readable());
            TLB.offline();
        });
        // CPU 1 is not waited for, nor is it asked to do anything.
        let frames = (page.unmap(), kernel.unmap());
        TLB.flush(&page.space, Request::range(page.range())).wait();
        TLB.flush_kernel(Request::range(kernel.range())).wait();
        drop(frames);
        rig.on(1, || {
            TLB.online().expect("it was offline");
            assert!(!kernel.is_readable());
            case::load(&page.space);
            assert!(!page.is_readable());
            case::unload();
        });
        page.retire();
    }

    #[test]
    fn coming_online_drops_what_the_cpu_had() {
        assert!(!is_readable_after_coming_back(false));
    }

    #[test]
    fn coming_online_is_stale_without_the_instruction() {
        assert!(is_readable_after_coming_back(true));
    }

    /// Whether CPU 1 can read a page that was unmapped while it was offline, and for which no flush was broadcast.
    fn is_readable_after_coming_back(without_instruction: bool) -> bool {
        let rig = Rig::start();
        let mut kernel = KernelPage::mapped();
        rig.on(1, || {
            assert!(kernel.is_readable());
            TLB.offline();
        });
        let _frame = kernel.unmap();
        assert!(rig.on(1, || kernel.is_readable()), "the page must be stale");
        skip_invalidations(without_instruction);
        rig.on(1, || {
            TLB.online().expect("it was offline");
            kernel.is_readable()
        })
    }

    #[test]
    fn a_cpu_may_be_switched_off_and_started_again() {
        rig::start_alone();
        let mut kernel = KernelPage::mapped();
        for _ in 0..3 {
            assert!(kernel.is_readable());
            cpu::start(1, |_| {
                TLB.online().expect("the CPU was offline");
                TLB.flush_kernel(Request::all()).wait();
                TLB.offline();
            })
            .expect("CPU 1 is off");
            cpu::wait_until_off(1);
            let frame = kernel.unmap();
            TLB.flush_kernel(Request::range(kernel.range())).wait();
            assert!(!kernel.is_readable());
            drop(frame);
            kernel.map();
        }
    }

    #[test]
    fn a_space_that_runs_does_not_retire() {
        let rig = Rig::start();
        let page = SpacePage::mapped();
        rig.on(2, || case::load(&page.space));
        TLB.retire(&page.space).expect_err("CPU 2 runs it");
        case::unload_everywhere(&rig);
        page.retire();
    }

    #[test]
    fn a_local_flush_reaches_the_own_cpu_only() {
        let rig = Rig::start();
        let mut page = SpacePage::mapped();
        rig.on_all(&|_| {
            case::load(&page.space);
            assert!(page.is_readable());
        });
        let _frame = page.unmap();
        rig.on(1, || TLB.flush_local(page.range().start()));
        assert!(!rig.on(1, || page.is_readable()));
        assert!(rig.on(2, || page.is_readable()), "CPU 2 must be stale");
        TLB.flush(&page.space, Request::range(page.range())).wait();
        assert!(!rig.on(2, || page.is_readable()));
        case::unload_everywhere(&rig);
        page.retire();
    }
}
