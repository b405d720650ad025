//! [`Domain`]: the generation of a scope of flushes, a space or the kernel, and its last requests.
//!
//! A request IS a generation. An initiator bumps the generation and, where single pages will do, leaves a payload
//! in a ring of two entries. A CPU that serves looks at how far its own generation is behind: for each generation
//! it lacks it takes the payload from the ring, and where one is missing it drops everything of the scope. So a
//! request lives in the scope's own memory, any number of them is served by one look, and losing a payload costs
//! time, never correctness.

use crate::{
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
        const_unless_loom, fence,
    },
    coverage::{Branch, took},
    variant::{Broken, broken},
};

/// Set in a space's generation once it retires; the other bits count.
const RETIRED: u64 = 1 << 63;
/// Set in an entry's tag while its payload is being written.
const BUSY: u64 = 1 << 63;

/// How many requests the ring holds. Two: with the generation and the words a switch reads it fits one cache line.
pub(crate) const RING: u64 = 2;

#[derive(Debug)]
pub(crate) struct Entry {
    /// The generation whose payload stands here, and [`BUSY`].
    pub(crate) tag: AtomicU64,
    pub(crate) payload: AtomicU64,
}

/// A generation and the payloads of the last requests.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Domain {
    pub(crate) generation: AtomicU64,
    pub(crate) ring: [Entry; RING as usize],
}

/// What a CPU has to do to catch up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatchUp {
    /// Nothing.
    UpToDate,
    /// To drop what this payload names.
    One(u64),
    /// To drop what these two payloads name.
    Two(u64, u64),
    /// To drop everything of the scope.
    All,
}

impl Domain {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self {
                generation: AtomicU64::new(1),
                ring: [
                    Entry { tag: AtomicU64::new(0), payload: AtomicU64::new(0) },
                    Entry { tag: AtomicU64::new(0), payload: AtomicU64::new(0) },
                ],
            }
        }
    }

    /// As [`advance`](Self::advance), then [`publish`](Self::publish). Gives the new generation, or `None` if the scope
    /// has retired.
    #[inline]
    pub(crate) fn announce(
        &self,
        payload: Option<u64>,
        barrier_after_rmw: impl FnOnce(),
    ) -> Option<u64> {
        let before = self.advance(barrier_after_rmw);
        if Self::was_retired(before) {
            return None;
        }
        self.publish(before + 1, payload);
        Some(before + 1)
    }

    /// Starts a new generation and gives the one before, see [`was_retired`](Self::was_retired).
    ///
    /// The caller's page-table changes come before it and a full barrier must follow it before CPUs are looked at
    /// (invariant 1); `barrier_after_rmw` is that barrier, given by the architecture since a locked instruction
    /// is one already on x86.
    #[inline(always)]
    pub(crate) fn advance(&self, barrier_after_rmw: impl FnOnce()) -> u64 {
        let before = self.generation.fetch_add(1, SeqCst);
        if !broken(Broken::NoFlushBarrier) {
            barrier_after_rmw();
        }
        before
    }

    /// Whether the scope had retired at a generation that [`advance`](Self::advance) gave.
    #[inline(always)]
    pub(crate) const fn was_retired(before: u64) -> bool {
        before & RETIRED != 0
    }

    /// Leaves the payload of `generation` for CPUs that have the scope loaded. May be left out where there is none.
    #[inline(always)]
    pub(crate) fn publish(&self, generation: u64, payload: Option<u64>) {
        if let Some(payload) = payload {
            self.entry(generation).publish(generation, payload);
        }
    }

    /// Starts a new generation for which everything of the scope must be looked at again, whether it has retired or not.
    /// Gives it. A full barrier comes before CPUs are looked at, as in [`advance`](Self::advance).
    pub(crate) fn advance_always(&self, barrier_after_rmw: impl FnOnce()) -> u64 {
        let before = self.generation.fetch_add(1, SeqCst);
        barrier_after_rmw();
        (before & !RETIRED) + 1
    }

    /// The generation now; whoever compares with it must read it before flushing (invariant 4).
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Acquire) & !RETIRED
    }

    /// The generation now, or `None` if the scope has retired.
    #[inline]
    pub(crate) fn generation_unless_retired(&self) -> Option<u64> {
        let generation = self.generation.load(Acquire);
        (generation & RETIRED == 0).then_some(generation)
    }

    /// The generation now, for a scope that never retires, or for a look at whether it is the next one.
    #[inline(always)]
    pub(crate) fn raw_generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// What a CPU must do that lacks generation `now` only.
    #[inline(always)]
    pub(crate) fn last_step(&self, now: u64) -> CatchUp {
        match self.entry(now).read(now) {
            Some(payload) => CatchUp::One(payload),
            None => {
                took(Branch::RingMissed);
                CatchUp::All
            }
        }
    }

    /// What a CPU at generation `have` must do to reach `now`, which was read from [`generation`](Self::generation).
    pub(crate) fn catch_up(&self, have: u64, now: u64) -> CatchUp {
        if have == now {
            return CatchUp::UpToDate;
        }
        let behind = now.wrapping_sub(have);
        if broken(Broken::PartialNotContiguous)
            && let Some(payload) = self.entry(now).read(now)
        {
            return CatchUp::One(payload);
        }
        let caught = match behind {
            1 => self.entry(now).read(now).map(CatchUp::One),
            2 => self
                .entry(now - 1)
                .read(now - 1)
                .zip(self.entry(now).read(now))
                .map(|(first, second)| CatchUp::Two(first, second)),
            _ => None,
        };
        caught.unwrap_or_else(|| {
            took(Branch::RingMissed);
            CatchUp::All
        })
    }

    /// Marks the scope as retired: from now on [`announce`](Self::announce) and
    /// [`generation_unless_retired`](Self::generation_unless_retired) give `None`. False if it was already. It is a
    /// new generation too, so that every CPU that has the scope loaded is behind.
    pub(crate) fn retire(&self) -> bool {
        let first = self.generation.fetch_or(RETIRED, SeqCst) & RETIRED == 0;
        if first {
            self.generation.fetch_add(1, SeqCst);
        }
        first
    }

    /// Takes [`retire`](Self::retire) back.
    pub(crate) fn revive(&self) {
        self.generation.fetch_and(!RETIRED, SeqCst);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.generation.load(Relaxed) & RETIRED != 0
    }

    #[inline(always)]
    fn entry(&self, generation: u64) -> &Entry {
        &self.ring[(generation % RING) as usize]
    }
}

impl Entry {
    /// Publishes the payload of `generation`, unless another initiator writes here now or a later generation stands
    /// here already: then whoever needs this one drops everything.
    ///
    /// The claim matters: two initiators whose generations share an entry could otherwise leave one's tag on the
    /// other's payload.
    #[inline(always)]
    fn publish(&self, generation: u64, payload: u64) {
        let tag = self.tag.load(Relaxed);
        if !broken(Broken::RingUnclaimed) {
            // BUSY makes a tag larger than any generation.
            let free = tag < generation;
            let claim = |tag| {
                self.tag
                    .compare_exchange(tag, generation | BUSY, AcqRel, Relaxed)
                    .is_ok()
            };
            if !(free && claim(tag)) {
                took(Branch::RingContended);
                return;
            }
            // A reader that sees the new payload sees at least BUSY when it looks at the tag again.
            fence(Release);
        }
        self.payload.store(payload, Relaxed);
        self.tag.store(generation, Release);
    }

    /// The payload of `generation`, if it stands here whole.
    #[inline(always)]
    fn read(&self, generation: u64) -> Option<u64> {
        if broken(Broken::RingTagIgnored) {
            return Some(self.payload.load(Acquire));
        }
        let before = self.tag.load(Acquire);
        let payload = self.payload.load(Relaxed);
        // A writer may have come in between: pairs with the release fence in `publish`.
        fence(Acquire);
        let after = self.tag.load(Relaxed);
        (before == generation && after == generation).then_some(payload)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn announce(domain: &Domain, payload: Option<u64>) -> u64 {
        domain.announce(payload, || fence(SeqCst)).unwrap()
    }

    #[test]
    fn a_cpu_catches_up_with_what_it_lacks() {
        let domain = Domain::new();
        let start = domain.generation();
        assert_eq!(domain.catch_up(start, start), CatchUp::UpToDate);
        let first = announce(&domain, Some(10));
        assert_eq!(domain.catch_up(start, first), CatchUp::One(10));
        let second = announce(&domain, Some(20));
        assert_eq!(domain.catch_up(start, second), CatchUp::Two(10, 20));
        assert_eq!(domain.catch_up(first, second), CatchUp::One(20));
        let third = announce(&domain, Some(30));
        assert_eq!(domain.catch_up(start, third), CatchUp::All);
        assert_eq!(domain.catch_up(first, third), CatchUp::Two(20, 30));
    }

    #[test]
    fn a_request_without_payload_drops_everything() {
        let domain = Domain::new();
        let first = announce(&domain, Some(10));
        let second = announce(&domain, None);
        assert_eq!(domain.catch_up(first - 1, second), CatchUp::All);
        assert_eq!(domain.catch_up(first, second), CatchUp::All);
        let third = announce(&domain, Some(30));
        assert_eq!(domain.catch_up(first, third), CatchUp::All);
        assert_eq!(domain.catch_up(second, third), CatchUp::One(30));
    }

    #[test]
    fn a_claimed_entry_is_left_alone() {
        let entry = Entry {
            tag: AtomicU64::new(2 | BUSY),
            payload: AtomicU64::new(7),
        };
        entry.publish(4, 8);
        assert_eq!(entry.read(4), None);
        assert_eq!(entry.payload.load(Relaxed), 7);
        entry.tag.store(6, Relaxed);
        entry.publish(4, 8);
        assert_eq!(entry.read(6), Some(7));
    }

    #[test]
    fn a_retired_scope_takes_no_request() {
        let domain = Domain::new();
        let before = domain.generation();
        assert!(domain.retire());
        assert!(!domain.retire());
        assert_eq!(domain.generation(), before + 1);
        assert_eq!(domain.announce(None, || ()), None);
        assert_eq!(domain.generation_unless_retired(), None);
        domain.revive();
        assert!(domain.announce(None, || ()).is_some());
    }
}
