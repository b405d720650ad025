//! [`Serial`].

use super::Courier;

/// One after the other: flushes the own TLB, then sends interrupts and waits.
#[derive(Debug, Default)]
pub struct Serial;

// SAFETY: it takes no CPU out.
unsafe impl Courier for Serial {
    const INITIAL: Self = Self;

    fn is_concurrent(&self) -> bool {
        false
    }
}
