//! CPUs come and go, and flush before the others are there.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use flush_cases::attempt::{Attempt, attempts};
    use flush_cases::backend::Backend;
    use flush_cases::case::{load, unload, unload_everywhere};
    use flush_cases::page::{KernelPage, SpacePage};
    use flush_cases::rig::{self, Rig};
    use shootdown::aarch64::{Broadcast, skip_invalidations};
    use shootdown::{Request, TlbFlusher};
    use shootdown_examples_aarch64::platform::Kernel;
    use shootdown_examples_aarch64::{cpu, platform};

    type Tlb = Broadcast<Kernel>;

    #[test]
    fn flushes_before_other_cpus_are_online() {
        rig::start_alone::<Tlb>();
        attempts(|place| {
            let mut page = SpacePage::<Tlb>::mapped(place);
            let mut kernel = KernelPage::<Tlb>::mapped(place + 1);
            load::<Tlb>(&page.space);
            assert!(page.is_readable() && kernel.is_readable());

            let frames = (page.unmap(), kernel.unmap());
            let unflushed = page.is_readable() && kernel.is_readable();
            Tlb::TLB
                .flush(&page.space, Request::range(page.range()))
                .wait();
            assert!(!page.is_readable());
            // A flush of a space leaves the kernel's entries alone.
            let kernel_unflushed = kernel.is_readable();
            Tlb::TLB.flush_kernel(Request::range(kernel.range())).wait();
            assert!(!kernel.is_readable());
            drop(frames);
            unload::<Tlb>();
            page.retire();
            Attempt::conclusive_if(unflushed && kernel_unflushed)
        });
    }

    #[test]
    fn is_stale_before_other_cpus_are_online_without_the_instruction() {
        rig::start_alone::<Tlb>();
        attempts(|place| {
            let mut page = SpacePage::<Tlb>::mapped(place);
            load::<Tlb>(&page.space);
            assert!(page.is_readable());
            let _frame = page.unmap();
            skip_invalidations(true);
            Tlb::TLB
                .flush(&page.space, Request::range(page.range()))
                .wait();
            let flushed = page.is_readable();
            skip_invalidations(false);
            unload::<Tlb>();
            page.retire();
            Attempt::conclusive_if(flushed)
        });
    }

    #[test]
    #[should_panic]
    fn a_cpu_that_is_not_online_may_not_flush() {
        if Tlb::TLB.init(platform::config()).is_ok() {
            Tlb::TLB.flush_kernel(Request::all()).wait();
        }
    }

    #[test]
    fn what_a_cpu_saw_before_it_went_offline_is_gone_when_it_is_back() {
        let rig = Rig::start::<Tlb>();
        let mut page = SpacePage::<Tlb>::mapped(0);
        let mut kernel = KernelPage::<Tlb>::mapped(0);
        rig.on(1, || {
            load::<Tlb>(&page.space);
            assert!(page.is_readable() && kernel.is_readable());
            Tlb::TLB.offline();
        });
        // CPU 1 is not waited for, nor is it asked to do anything.
        let frames = (page.unmap(), kernel.unmap());
        Tlb::TLB
            .flush(&page.space, Request::range(page.range()))
            .wait();
        Tlb::TLB.flush_kernel(Request::range(kernel.range())).wait();
        drop(frames);
        rig.on(1, || {
            Tlb::TLB.online().expect("it was offline");
            assert!(!kernel.is_readable());
            load::<Tlb>(&page.space);
            assert!(!page.is_readable());
            unload::<Tlb>();
        });
        page.retire();
    }

    #[test]
    fn coming_online_drops_what_the_cpu_had() {
        come_online(false);
    }

    #[test]
    fn coming_online_is_stale_without_the_instruction() {
        come_online(true);
    }

    /// CPU 1 comes back after a page was unmapped for which no flush was broadcast.
    fn come_online(without_instruction: bool) {
        let rig = Rig::start::<Tlb>();
        attempts(|place| {
            let mut kernel = KernelPage::<Tlb>::mapped(place);
            rig.on(1, || {
                assert!(kernel.is_readable());
                Tlb::TLB.offline();
            });
            let frame = kernel.unmap();
            let offline = rig.on(1, || kernel.is_readable());
            skip_invalidations(without_instruction);
            rig.on(1, || Tlb::TLB.online().expect("it was offline"));
            skip_invalidations(false);
            let online = rig.on(1, || kernel.is_readable());
            if !without_instruction {
                assert!(!online);
            }
            Tlb::TLB.flush_kernel(Request::range(kernel.range())).wait();
            drop(frame);
            Attempt::conclusive_if(offline && online == without_instruction)
        });
    }

    #[test]
    fn a_cpu_may_be_switched_off_and_started_again() {
        rig::start_alone::<Tlb>();
        let mut kernel = KernelPage::<Tlb>::mapped(0);
        for _ in 0..3 {
            assert!(kernel.is_readable());
            cpu::start(1, |_| {
                Tlb::TLB.online().expect("the CPU was offline");
                Tlb::TLB.flush_kernel(Request::all()).wait();
                Tlb::TLB.offline();
            })
            .expect("CPU 1 is off");
            cpu::wait_until_off(1);
            let frame = kernel.unmap();
            Tlb::TLB.flush_kernel(Request::range(kernel.range())).wait();
            assert!(!kernel.is_readable());
            drop(frame);
            kernel.map();
        }
    }

    #[test]
    fn a_space_that_runs_does_not_retire() {
        let rig = Rig::start::<Tlb>();
        let page = SpacePage::<Tlb>::mapped(0);
        rig.on(2, || load::<Tlb>(&page.space));
        Tlb::TLB.retire(&page.space).expect_err("CPU 2 runs it");
        unload_everywhere::<Tlb>(&rig);
        page.retire();
    }

    #[test]
    fn a_local_flush_reaches_the_own_cpu_only() {
        let rig = Rig::start::<Tlb>();
        attempts(|place| {
            let mut page = SpacePage::<Tlb>::mapped(place);
            rig.on_all(&|_| {
                load::<Tlb>(&page.space);
                assert!(page.is_readable());
            });
            let frame = page.unmap();
            rig.on(1, || Tlb::TLB.flush_local(page.range().start()));
            assert!(!rig.on(1, || page.is_readable()));
            let elsewhere = rig.on(2, || page.is_readable());
            Tlb::TLB
                .flush(&page.space, Request::range(page.range()))
                .wait();
            assert!(!rig.on(2, || page.is_readable()));
            drop(frame);
            unload_everywhere::<Tlb>(&rig);
            page.retire();
            Attempt::conclusive_if(elsewhere)
        });
    }
}
