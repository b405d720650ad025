//! The kernel's spin lock.

use core::arch::asm;

use spin::mutex::SpinMutex;
use spin::relax::RelaxStrategy;

/// A spin lock that yields while it waits.
pub type Lock<T> = SpinMutex<T, Yield>;

/// Spins with `YIELD`: the ISB that [`core::hint::spin_loop`] emits here stalls QEMU's single-threaded emulation.
#[derive(Clone, Copy, Debug)]
pub struct Yield;

impl RelaxStrategy for Yield {
    #[inline]
    fn relax() {
        relax();
    }
}

/// Tells the processor that the caller spins.
#[inline]
pub fn relax() {
    // SAFETY: YIELD is a hint without an effect on registers or memory.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) }
}
