//! A lock for the crate's own tables. Taken with interrupts off, never held across a wait; whoever spins for it goes on
//! to serve.

use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    const_unless_loom,
};

#[derive(Debug)]
pub(crate) struct PollingLock(AtomicU64);

/// The lock is held while this lives.
#[derive(Debug)]
pub(crate) struct Held<'a>(&'a AtomicU64);

impl PollingLock {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// Takes the lock; calls `relax`, which serves and pauses, on each turn that finds it taken.
    pub(crate) fn lock(&self, mut relax: impl FnMut()) -> Held<'_> {
        while self.0.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            while self.0.load(Relaxed) != 0 {
                relax();
            }
        }
        Held(&self.0)
    }

    #[cfg(all(feature = "_sim", not(loom)))]
    pub(crate) fn word(&self) -> &core::sync::atomic::AtomicU64 {
        self.0.native()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}
