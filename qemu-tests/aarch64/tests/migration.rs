//! Whom a flush may spare: CPUs that do not run the space, and what becomes of the entries that they keep.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use aarch64_cpu::registers::{Readable, TCR_EL1, TTBR1_EL1};
    use flush_cases::attempt::{Attempt, attempts};
    use flush_cases::backend::{
        ActiveCpuKeeping, Backend, BroadcastKeeping, BroadcastTtbr1, LocalKeeping, LocalTtbr1,
    };
    use flush_cases::case::{load, unload, unload_everywhere};
    use flush_cases::page::SpacePage;
    use flush_cases::rig::Rig;
    use shootdown::aarch64::{ActiveCpu, Broadcast, Local, skip_invalidations};
    use shootdown::{Counters, Request, TlbFlusher};
    use shootdown_examples_aarch64::platform::Kernel;

    /// What a CPU has of a page that another CPU unmapped and flushed while this one did not run the space.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Kept {
        /// It could read the page before the flush.
        before: bool,
        /// It can read it after the flush.
        after: bool,
        /// It can read it once it has loaded the space again.
        loaded: bool,
    }

    /// CPU 1 runs the space and leaves it; then CPU `flusher` unmaps the page and flushes; then CPU 1 comes back, its
    /// invalidations left out if `without_instruction`.
    fn leave_and_come_back<B: Backend>(
        rig: &Rig,
        place: u64,
        flusher_runs_it: bool,
        without_instruction: bool,
    ) -> (Kept, Counters) {
        let mut page = SpacePage::<B>::mapped(place);
        rig.on(1, || {
            load::<B>(&page.space);
            assert!(page.is_readable());
            unload::<B>();
        });
        if flusher_runs_it {
            rig.on(2, || load::<B>(&page.space));
        }
        let start = B::TLB.counters_of(2);
        let frame = page.unmap();
        let before = rig.on(1, || page.is_readable());
        rig.on(2, || {
            B::TLB
                .flush(&page.space, Request::range(page.range()))
                .wait();
        });
        let after = rig.on(1, || page.is_readable());
        skip_invalidations(without_instruction);
        let loaded = rig.on(1, || {
            load::<B>(&page.space);
            page.is_readable()
        });
        skip_invalidations(false);
        let mut counters = B::TLB.counters_of(2);
        counters.local -= start.local;
        counters.remote -= start.remote;
        counters.elided_unused -= start.elided_unused;
        B::TLB.flush(&page.space, Request::all()).wait();
        drop(frame);
        unload_everywhere::<B>(rig);
        page.retire();
        let kept = Kept {
            before,
            after,
            loaded,
        };
        (kept, counters)
    }

    /// The flush is local or goes nowhere, so CPU 1 keeps its entry. It is gone when CPU 1 loads the space, unless that
    /// executes no invalidation.
    fn stale_bits(flusher_runs_it: bool, without_instruction: bool) {
        let rig = Rig::start::<LocalKeeping>();
        attempts(|place| {
            let (kept, counters) = leave_and_come_back::<LocalKeeping>(
                &rig,
                place,
                flusher_runs_it,
                without_instruction,
            );
            assert_eq!((counters.local, counters.remote), (1, 0));
            assert_eq!(counters.elided_unused, u64::from(!flusher_runs_it));
            if !without_instruction {
                assert!(!kept.loaded, "an entry outlived a local flush: {kept:?}");
            }
            Attempt::conclusive_if(kept.before && kept.after && kept.loaded == without_instruction)
        });
    }

    #[test]
    fn an_entry_that_a_local_flush_left_is_dropped_at_the_next_load() {
        stale_bits(true, false);
    }

    #[test]
    fn an_entry_that_a_local_flush_left_is_stale_without_the_instruction() {
        stale_bits(true, true);
    }

    #[test]
    fn an_entry_that_an_elided_flush_left_is_dropped_at_the_next_load() {
        stale_bits(false, false);
    }

    #[test]
    fn an_entry_that_an_elided_flush_left_is_stale_without_the_instruction() {
        stale_bits(false, true);
    }

    /// CPU 1 has loaded the space: the flush reaches it, although it does not run it now.
    fn reaches_a_cpu_that_left<B: Backend>() {
        let rig = Rig::start::<B>();
        attempts(|place| {
            let (kept, counters) = leave_and_come_back::<B>(&rig, place, true, false);
            assert_eq!((counters.local, counters.remote), (0, 1));
            assert!(!kept.after && !kept.loaded, "{kept:?}");
            Attempt::conclusive_if(kept.before)
        });
    }

    #[test]
    fn a_broadcast_reaches_a_cpu_that_left() {
        reaches_a_cpu_that_left::<BroadcastKeeping>();
    }

    #[test]
    fn active_cpu_reaches_a_cpu_that_left() {
        reaches_a_cpu_that_left::<ActiveCpuKeeping>();
    }

    /// Freed tables may be walked although the space does not run.
    #[test]
    fn freed_tables_reach_a_cpu_that_left() {
        let rig = Rig::start::<LocalKeeping>();
        attempts(|place| {
            let mut page = SpacePage::<LocalKeeping>::mapped(place);
            rig.on(1, || {
                load::<LocalKeeping>(&page.space);
                assert!(page.is_readable());
                unload::<LocalKeeping>();
            });
            rig.on(2, || load::<LocalKeeping>(&page.space));
            let frame = page.unmap();
            let before = rig.on(1, || page.is_readable());
            let request = Request::range(page.range()).tables_freed();
            rig.on(2, || LocalKeeping::TLB.flush(&page.space, request).wait());
            assert!(!rig.on(1, || page.is_readable()));
            let counters = LocalKeeping::TLB.counters();
            assert_eq!((counters.local, counters.local_tables), (0, 0));
            drop(frame);
            unload_everywhere::<LocalKeeping>(&rig);
            page.retire();
            Attempt::conclusive_if(before)
        });
    }

    /// A space goes to and fro between two CPUs, which change its page in turns.
    fn back_and_forth<B: Backend>() -> Counters {
        let rig = Rig::start::<B>();
        let mut page = SpacePage::<B>::mapped(5);
        for turn in 0..40u64 {
            let cpu = 1 + turn as usize % 2;
            let page = &mut page;
            rig.on(cpu, || {
                load::<B>(&page.space);
                // What the other CPU has left.
                assert_eq!(page.read().filter(|_| turn > 0), turn.checked_sub(1));
                let frame = page.unmap();
                B::TLB
                    .flush(&page.space, Request::range(page.range()))
                    .wait();
                assert_eq!(page.read(), None);
                // Another frame, so that an old entry leads elsewhere.
                page.map_tagged(turn);
                drop(frame);
                assert_eq!(page.read(), Some(turn));
                unload::<B>();
            });
        }
        page.retire();
        B::TLB.counters()
    }

    #[test]
    fn local_goes_back_and_forth_without_a_broadcast() {
        let counters = back_and_forth::<Local<Kernel>>();
        assert_eq!((counters.local, counters.broadcasts), (40, 0));
        assert_eq!(
            counters.switches_flushed, 40,
            "each load found its bit stale"
        );
    }

    #[test]
    fn local_goes_back_and_forth_on_a_tlb_that_keeps() {
        let counters = back_and_forth::<LocalKeeping>();
        assert_eq!((counters.local, counters.broadcasts), (40, 0));
    }

    #[test]
    fn active_cpu_broadcasts_once_a_second_cpu_has_loaded_the_space() {
        let counters = back_and_forth::<ActiveCpu<Kernel>>();
        assert_eq!((counters.local, counters.broadcasts), (1, 39));
    }

    #[test]
    fn broadcast_always_does() {
        let counters = back_and_forth::<Broadcast<Kernel>>();
        assert_eq!((counters.local, counters.broadcasts), (0, 40));
    }

    #[test]
    fn broadcast_with_the_asid_in_ttbr1() {
        let counters = back_and_forth::<BroadcastTtbr1>();
        assert_eq!((counters.local, counters.broadcasts), (0, 40));
        assert_asid_was_in_ttbr1();
    }

    #[test]
    fn local_with_the_asid_in_ttbr1() {
        let counters = back_and_forth::<LocalTtbr1>();
        assert_eq!((counters.local, counters.broadcasts), (40, 0));
        assert_asid_was_in_ttbr1();
    }

    fn assert_asid_was_in_ttbr1() {
        assert!(TCR_EL1.matches_all(TCR_EL1::A1::TTBR1));
        let asid = TTBR1_EL1.get() >> 48;
        assert_eq!(asid, 0, "that of the reserved root");
    }

    /// CPUs 1 and 2 run the space at once, then CPU 1 alone.
    #[test]
    fn a_second_cpu_is_told_while_it_runs_the_space() {
        let rig = Rig::start::<Local<Kernel>>();
        let tlb = Local::<Kernel>::TLB;
        attempts(|place| {
            let mut page = SpacePage::<Local<Kernel>>::mapped(place);
            for cpu in [1, 2] {
                rig.on(cpu, || {
                    load::<Local<Kernel>>(&page.space);
                    assert!(page.is_readable());
                });
            }
            let frame = page.unmap();
            // What the local invalidation alone would do.
            rig.on(1, || tlb.flush_local(page.range().start()));
            let unflushed = rig.on(2, || page.is_readable());
            let before = tlb.counters();
            rig.on(1, || {
                tlb.flush(&page.space, Request::range(page.range())).wait()
            });
            assert!(!rig.on(2, || page.is_readable()));
            assert_eq!(tlb.counters().remote - before.remote, 1);
            drop(frame);

            rig.on(2, unload::<Local<Kernel>>);
            page.map();
            assert!(rig.on(1, || page.is_readable()));
            let frame = page.unmap();
            let before = tlb.counters();
            rig.on(1, || {
                tlb.flush(&page.space, Request::range(page.range())).wait()
            });
            assert!(!rig.on(1, || page.is_readable()));
            assert_eq!(tlb.counters().remote, before.remote);
            drop(frame);
            unload_everywhere::<Local<Kernel>>(&rig);
            page.retire();
            Attempt::conclusive_if(unflushed)
        });
    }

    /// Only CPUs that have never loaded the space are spared, and those can have walked no table.
    #[test]
    fn active_cpu_frees_tables_locally() {
        let rig = Rig::start::<ActiveCpu<Kernel>>();
        let tlb = ActiveCpu::<Kernel>::TLB;
        let mut page = SpacePage::<ActiveCpu<Kernel>>::mapped(0);
        let request = Request::range(page.range()).tables_freed();
        rig.on(1, || {
            load::<ActiveCpu<Kernel>>(&page.space);
            assert!(page.is_readable());
            let frame = page.unmap();
            tlb.flush(&page.space, request).wait();
            assert!(!page.is_readable());
            drop(frame);
            unload::<ActiveCpu<Kernel>>();
        });
        assert_eq!((tlb.counters().local_tables, tlb.counters().remote), (1, 0));
        page.retire();
    }

    /// A device may have what no CPU has.
    #[test]
    fn a_space_shared_with_a_device_is_always_broadcast() {
        let rig = Rig::start::<Local<Kernel>>();
        let tlb = Local::<Kernel>::TLB;
        let page = SpacePage::<Local<Kernel>>::mapped(0);
        tlb.share_with_device(&page.space).expect("it is the first");
        for cpu in [0, 1] {
            rig.on(cpu, || {
                load::<Local<Kernel>>(&page.space);
                tlb.flush(&page.space, Request::range(page.range())).wait();
                unload::<Local<Kernel>>();
            });
        }
        tlb.flush(&page.space, Request::all()).wait();
        let counters = tlb.counters();
        assert_eq!((counters.local, counters.remote), (0, 3));
        page.retire();
    }
}
