//! A barrier for all CPUs.

use core::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire},
};

/// Lets nobody pass before all have come. Usable again at once.
#[derive(Debug)]
pub struct Barrier {
    parties: usize,
    arrivals: AtomicUsize,
}

impl Barrier {
    /// A barrier for `parties` CPUs.
    #[must_use]
    pub const fn new(parties: usize) -> Self {
        Self {
            parties,
            arrivals: AtomicUsize::new(0),
        }
    }

    /// Waits for all others, calling `idle` meanwhile: it should tell the processor that this is a spin loop, and
    /// serve flushes where interrupts are off.
    pub fn wait(&self, mut idle: impl FnMut()) {
        let mine = self.arrivals.fetch_add(1, AcqRel);
        let full = (mine / self.parties + 1) * self.parties;
        while self.arrivals.load(Acquire) < full {
            idle();
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use core::sync::atomic::Ordering::Relaxed;
    use std::thread;

    use super::*;

    #[test]
    fn nobody_is_a_round_ahead() {
        let (barrier, turns) = (Barrier::new(3), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..100 {
                        turns.fetch_add(1, Relaxed);
                        barrier.wait(thread::yield_now);
                        assert!(turns.load(Relaxed) >= (round + 1) * 3);
                        barrier.wait(thread::yield_now);
                    }
                });
            }
        });
    }
}
