//! More spaces than ASIDs: 600 of them share 255.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use flush_cases::attempt::{Attempt, attempts};
    use flush_cases::backend::{
        Backend, BroadcastFewAsids, BroadcastKeepingFewAsids, LocalFewAsids,
    };
    use flush_cases::case::{load, unload, unload_everywhere};
    use flush_cases::page::SpacePage;
    use flush_cases::rig::Rig;
    use shootdown::aarch64::skip_invalidations;
    use shootdown::{Request, TlbFlusher};
    use shootdown_examples_aarch64::lock::{Lock, relax};

    const SPACES: usize = 600;
    const ROUNDS: u64 = 4;
    const ASIDS: u16 = 256;

    #[derive(Debug, Default)]
    struct Reads {
        fresh: AtomicU64,
        stale: AtomicU64,
    }

    impl Reads {
        fn judge(&self, read: Option<u64>, expected: Option<u64>) {
            let counter = if read == expected {
                &self.fresh
            } else {
                &self.stale
            };
            counter.fetch_add(1, Relaxed);
        }
    }

    /// In each round every space is loaded by another CPU, which reads its page, unmaps it, and maps it anew. Gives what
    /// the reads came to, and how often a space got another ASID.
    fn walk<B: Backend>(rig: &Rig) -> (Reads, u64) {
        let pages: [Lock<SpacePage<B>>; SPACES] = core::array::from_fn(|space| {
            let mut page = SpacePage::mapped(0);
            // Nobody has loaded the space.
            drop(page.unmap());
            page.map_tagged(tag(space, 0));
            Lock::new(page)
        });
        let (reads, renewed) = (Reads::default(), AtomicU64::new(0));
        for round in 1..=ROUNDS {
            rig.on_all(&|cpu| {
                for space in
                    (0..SPACES).filter(|space| (space + round as usize) % rig.cpus() == cpu)
                {
                    let mut page = pages[space].lock();
                    let before = page.space.tag();
                    load::<B>(&page.space);
                    let asid = page.space.tag();
                    assert!((1..ASIDS).contains(&asid), "ASID {asid}");
                    renewed.fetch_add(u64::from(asid != before), Relaxed);
                    reads.judge(page.read(), Some(tag(space, round - 1)));
                    // Others load spaces meanwhile, and run out of ASIDs.
                    relax();
                    let frame = page.unmap();
                    B::TLB
                        .flush(&page.space, Request::range(page.range()))
                        .wait();
                    reads.judge(page.read(), None);
                    page.map_tagged(tag(space, round));
                    drop(frame);
                    relax();
                    reads.judge(page.read(), Some(tag(space, round)));
                }
            });
        }
        unload_everywhere::<B>(rig);
        for page in &pages {
            page.lock().retire();
        }
        (reads, renewed.into_inner())
    }

    fn tag(space: usize, round: u64) -> u64 {
        round << 32 | space as u64
    }

    fn is_fresh<B: Backend>() {
        let (reads, renewed) = walk::<B>(&Rig::start::<B>());
        assert!(renewed > 2 * SPACES as u64, "{renewed} ASIDs");
        assert_eq!(reads.fresh.into_inner(), 3 * ROUNDS * SPACES as u64);
        assert_eq!(reads.stale.into_inner(), 0);
    }

    #[test]
    fn no_read_is_stale_over_rollovers() {
        is_fresh::<BroadcastFewAsids>();
    }

    #[test]
    fn no_read_is_stale_over_rollovers_local() {
        is_fresh::<LocalFewAsids>();
    }

    #[test]
    fn reads_are_stale_over_rollovers_without_the_instruction() {
        let rig = Rig::start::<LocalFewAsids>();
        skip_invalidations(true);
        let (reads, _) = walk::<LocalFewAsids>(&rig);
        assert!(reads.stale.into_inner() > 0);
    }

    /// CPU 2 loads so many spaces that ASIDs run out, and calls `seen` with each one's ASID. `then` comes before they
    /// retire, which QEMU has every CPU drop everything for.
    fn roll_over<B: Backend>(rig: &Rig, seen: impl Fn(u16) + Sync, then: impl FnOnce()) {
        let others: [SpacePage<B>; ASIDS as usize + 44] =
            core::array::from_fn(|_| SpacePage::mapped(0));
        rig.on(2, || {
            for other in &others {
                load::<B>(&other.space);
                seen(other.space.tag());
            }
            unload::<B>();
        });
        then();
        others.iter().for_each(SpacePage::retire);
    }

    /// CPU 1 runs a space all the while.
    fn keeps_its_asid<B: Backend>() {
        let rig = Rig::start::<B>();
        let page = SpacePage::<B>::mapped(0);
        rig.on(1, || load::<B>(&page.space));
        let asid = page.space.tag();
        for _ in 0..3 {
            roll_over::<B>(&rig, |other| assert_ne!(other, asid), || {});
        }
        // Under the ASID that CPU 1 has: a flush names one.
        rig.on(3, || load::<B>(&page.space));
        assert_eq!(page.space.tag(), asid);
        unload_everywhere::<B>(&rig);
        page.retire();
    }

    #[test]
    fn an_asid_stays_with_the_space_that_a_cpu_runs_over_rollovers() {
        keeps_its_asid::<BroadcastFewAsids>();
    }

    #[test]
    fn an_asid_stays_with_the_space_that_a_cpu_runs_over_rollovers_local() {
        keeps_its_asid::<LocalFewAsids>();
    }

    #[test]
    fn a_pinned_asid_is_never_another_ones() {
        let rig = Rig::start::<LocalFewAsids>();
        let page = SpacePage::<LocalFewAsids>::mapped(0);
        let pinned = LocalFewAsids::TLB.share_with_device(&page.space);
        pinned.expect("it is the first");
        let asid = page.space.tag();
        for _ in 0..2 {
            roll_over::<LocalFewAsids>(&rig, |other| assert_ne!(other, asid), || {});
        }
        assert_eq!(page.space.tag(), asid);
        page.retire();
    }

    /// A page is unmapped, without a flush, of a space that CPU 1 has left; ASIDs run out; CPU 1 comes back.
    fn come_back_after_a_rollover(without_instruction: bool) {
        type Tlb = BroadcastKeepingFewAsids;
        let rig = Rig::start::<Tlb>();
        attempts(|place| {
            let mut page = SpacePage::<Tlb>::mapped(place);
            rig.on(1, || {
                load::<Tlb>(&page.space);
                assert!(page.is_readable());
                unload::<Tlb>();
            });
            let frame = page.unmap();
            let (mut before, mut loaded) = (false, false);
            let come_back = || {
                before = rig.on(1, || page.is_readable());
                skip_invalidations(without_instruction);
                loaded = rig.on(1, || {
                    load::<Tlb>(&page.space);
                    page.is_readable()
                });
                skip_invalidations(false);
            };
            roll_over::<Tlb>(&rig, |_| {}, come_back);
            if !without_instruction {
                assert!(!loaded, "an entry of an earlier generation was used");
            }
            Tlb::TLB.flush(&page.space, Request::all()).wait();
            drop(frame);
            unload_everywhere::<Tlb>(&rig);
            page.retire();
            Attempt::conclusive_if(before && loaded == without_instruction)
        });
    }

    #[test]
    fn a_cpu_drops_everything_when_it_comes_back_after_a_rollover() {
        come_back_after_a_rollover(false);
    }

    #[test]
    fn a_cpu_that_comes_back_after_a_rollover_is_stale_without_the_instruction() {
        come_back_after_a_rollover(true);
    }
}
