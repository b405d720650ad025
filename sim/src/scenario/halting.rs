//! A paravirtual spin lock: whoever waits for it halts, and is kicked when it is given back.

use core::sync::atomic::{AtomicU64, Ordering};
use std::panic::Location;

use shootdown::atomic::Hook;

use crate::machine::{current::with, hook::Hooked, hypervisor::kick};

/// A lock and the CPUs that wait for it, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct HaltingLock {
    held: AtomicU64,
    /// By their indices in the machine.
    waiters: AtomicU64,
}

impl HaltingLock {
    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> bool {
        let mut take = |held| (held == 0).then_some(1);
        let at = Location::caller();
        Hooked
            .rmw(&self.held, &mut take, Ordering::Acquire, at)
            .is_ok()
    }

    /// Asks to be kicked. The locked instruction is before the look at the lock in [`is_free`](Self::is_free), as the
    /// holder's is between giving it back and its look at who waits: so the waiter sees it free, or is kicked.
    pub(crate) fn wait(&self, index: usize) {
        let mut add = |waiters| Some(waiters | 1 << index);
        let at = Location::caller();
        let _ = Hooked.rmw(&self.waiters, &mut add, Ordering::SeqCst, at);
    }

    pub(crate) fn is_free(&self) -> bool {
        Hooked.load(&self.held, Ordering::Acquire, Location::caller()) == 0
    }

    /// Gives the lock back and kicks all that wait for it.
    pub(crate) fn unlock(&self) {
        let at = Location::caller();
        let _ = Hooked.rmw(&self.held, &mut |_| Some(0), Ordering::SeqCst, at);
        let (Ok(waiters) | Err(waiters)) =
            Hooked.rmw(&self.waiters, &mut |_| Some(0), Ordering::SeqCst, at);
        for cpu in (0..with(|m| m.cpus.len())).filter(|cpu| waiters >> cpu & 1 != 0) {
            kick(cpu);
        }
    }

    /// The words, to name them.
    pub(crate) fn words(&self) -> [(&'static str, &AtomicU64); 2] {
        [
            ("halting.lock", &self.held),
            ("halting.waiters", &self.waiters),
        ]
    }
}
