//! [`Concurrent`].

use super::Courier;

/// Sends interrupts, flushes the own TLB while they are on their way, then waits (Amit, 2019; Linux 5.13).
#[derive(Debug, Default)]
pub struct Concurrent;

// SAFETY: it takes no CPU out.
unsafe impl Courier for Concurrent {
    const INITIAL: Self = Self;

    fn is_concurrent(&self) -> bool {
        true
    }
}
