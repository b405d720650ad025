//! A spin lock in simulated memory, for the scenario's page tables.

use core::sync::atomic::{AtomicU64, Ordering};
use std::panic::Location;

use shootdown::atomic::Hook;

use crate::machine::{hook::Hooked, scheduler::relax};

/// A spin lock on a cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Lock(AtomicU64);

impl Lock {
    /// Takes the lock; calls `poll` on each turn of the waiting loop.
    #[track_caller]
    pub(crate) fn lock(&self, poll: impl Fn()) {
        let at = Location::caller();
        let take = || {
            Hooked.rmw(
                &self.0,
                &mut |held| (held == 0).then_some(1),
                Ordering::Acquire,
                at,
            )
        };
        while take().is_err() {
            while Hooked.load(&self.0, Ordering::Relaxed, at) != 0 {
                poll();
                relax();
            }
        }
    }

    /// Gives the lock back.
    #[track_caller]
    pub(crate) fn unlock(&self) {
        Hooked.store(&self.0, 0, Ordering::Release, Location::caller());
    }

    /// The lock's word, to name it.
    pub(crate) fn word(&self) -> &AtomicU64 {
        &self.0
    }
}
