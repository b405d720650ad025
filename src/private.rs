//! Words that only their own CPU reads and writes, with interrupts off.
//!
//! They are relaxed `core` atomics: plain moves in machine code, no `unsafe`, and not scheduling points for loom or
//! the simulated machine, since no other CPU can see them change.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// A `u64` private to one CPU.
#[derive(Debug)]
pub(crate) struct Private(AtomicU64);

impl Private {
    pub(crate) const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Records `value` if nothing but 0 stands here, and gives what stands here then. Atomic.
    pub(crate) fn get_or_set(&self, value: u64) -> u64 {
        match self.0.compare_exchange(0, value, Relaxed, Relaxed) {
            Ok(_) => value,
            Err(recorded) => recorded,
        }
    }

    /// Adds `n`. Not atomic, and need not be: an interrupt that adds in between must not happen, so callers have
    /// interrupts off; readers on other CPUs see an old or a new figure.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }
}

/// A pointer private to one CPU.
#[derive(Debug)]
pub(crate) struct PrivatePtr(AtomicPtr<()>);

impl PrivatePtr {
    pub(crate) const fn null() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> *const () {
        self.0.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, pointer: *const ()) {
        self.0.store(pointer.cast_mut(), Relaxed);
    }
}
