//! More spaces than ASIDs: 600 of them share 255.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use flush_cases::backend::{Backend, BroadcastFewAsids, LocalFewAsids};
    use flush_cases::case::{load, unload_everywhere};
    use flush_cases::page::SpacePage;
    use flush_cases::rig::Rig;
    use shootdown::Request;
    use shootdown::aarch64::skip_invalidations;
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
                    drop(frame);
                    page.map_tagged(tag(space, round));
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
}
