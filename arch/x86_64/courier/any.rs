//! [`Any`]: a courier chosen at start-up.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::Courier;

/// A courier chosen when the flusher is initialized.
#[derive(Debug)]
pub struct Any {
    kind: AtomicU8,
}

/// The kinds that [`Any`] can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
#[repr(u8)]
pub enum CourierKind {
    /// [`Serial`](super::Serial).
    Serial = 0,
    /// [`Concurrent`](super::Concurrent).
    Concurrent = 1,
}

// SAFETY: it takes no CPU out.
unsafe impl Courier for Any {
    const INITIAL: Self = Self {
        kind: AtomicU8::new(CourierKind::Concurrent as u8),
    };

    fn is_concurrent(&self) -> bool {
        self.kind() == CourierKind::Concurrent
    }
}

impl Any {
    /// Which kind it is.
    pub fn kind(&self) -> CourierKind {
        match self.kind.load(Relaxed) {
            0 => CourierKind::Serial,
            _ => CourierKind::Concurrent,
        }
    }

    /// Chooses. Both kinds serve the same protocol, so this may even change while CPUs are online.
    pub fn choose(&self, kind: CourierKind) {
        self.kind.store(kind as u8, Relaxed);
    }
}
