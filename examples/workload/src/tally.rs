//! What the workloads count themselves.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::shadow::{Shadow, Verdict};

/// Counts of all CPUs together.
#[derive(Debug, Default)]
pub struct Tally {
    reads: AtomicU64,
    migrations: AtomicU64,
    stale: AtomicU64,
    stale_elsewhere: AtomicU64,
}

impl Tally {
    /// All zeros.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            reads: AtomicU64::new(0),
            migrations: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            stale_elsewhere: AtomicU64::new(0),
        }
    }

    /// Counts a read that CPU `cpu` made of the page behind `shadow`. Reads that could not be judged don't count.
    pub fn read(&self, verdict: Verdict, shadow: &Shadow, cpu: usize) {
        match verdict {
            Verdict::Unknown => return,
            Verdict::Fresh => {}
            Verdict::Stale => {
                self.stale.fetch_add(1, Relaxed);
                if shadow.changer() != cpu {
                    self.stale_elsewhere.fetch_add(1, Relaxed);
                }
            }
        }
        self.reads.fetch_add(1, Relaxed);
    }

    /// Counts a thread that runs on another CPU than before.
    pub fn migration(&self) {
        self.migrations.fetch_add(1, Relaxed);
    }

    /// Verified reads.
    pub fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Threads that moved.
    pub fn migrations(&self) -> u64 {
        self.migrations.load(Relaxed)
    }

    /// Reads through a stale translation.
    pub fn stale(&self) -> u64 {
        self.stale.load(Relaxed)
    }

    /// Those of them on another CPU than the one that changed the page.
    pub fn stale_elsewhere(&self) -> u64 {
        self.stale_elsewhere.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_initiator_from_others() {
        let (tally, shadow) = (Tally::new(), Shadow::new());
        shadow.begin_change(1, 2);
        for (verdict, cpu) in [
            (Verdict::Stale, 2),
            (Verdict::Stale, 0),
            (Verdict::Fresh, 0),
            (Verdict::Unknown, 0),
        ] {
            tally.read(verdict, &shadow, cpu);
        }
        assert_eq!(
            (tally.reads(), tally.stale(), tally.stale_elsewhere()),
            (3, 2, 1)
        );
    }
}
