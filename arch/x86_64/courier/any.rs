//! [`Any`]: a courier chosen at start-up.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use super::Courier;
use crate::x86_64::{
    Config, InitError,
    broadcast::{Broadcast, Home},
};

/// A courier chosen when the flusher is initialized.
#[derive(Debug)]
pub struct Any {
    kind: AtomicU8,
    configured: AtomicBool,
    broadcast: Home,
}

/// No kind was chosen, nor anything configured.
const UNDECIDED: u8 = u8::MAX;

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
    /// [`Broadcasting`](crate::x86_64::Broadcasting), with concurrent interrupts below the threshold.
    Invlpgb = 2,
}

// SAFETY: it takes no CPU out.
unsafe impl Courier for Any {
    const INITIAL: Self = Self {
        kind: AtomicU8::new(UNDECIDED),
        configured: AtomicBool::new(false),
        broadcast: Home::new(),
    };

    #[inline(always)]
    fn is_concurrent(&self) -> bool {
        self.kind() != CourierKind::Serial
    }

    #[inline(always)]
    fn broadcast(&self) -> Option<&Broadcast> {
        (self.kind() == CourierKind::Invlpgb).then(|| self.broadcast.get())
    }

    fn check(&self, config: &Config) -> Result<(), InitError> {
        if self.kind() == CourierKind::Invlpgb && config.features().invlpgb.is_none() {
            return Err(InitError::NoInvlpgb);
        }
        Ok(())
    }

    fn configure(&self, config: &Config) {
        if self.kind.load(Relaxed) == UNDECIDED {
            self.set(if config.features().invlpgb.is_some() {
                CourierKind::Invlpgb
            } else {
                CourierKind::Concurrent
            });
        }
        if let Some(broadcast) = self.broadcast() {
            broadcast.configure(config);
        }
        self.configured.store(true, Relaxed);
    }
}

impl Any {
    /// Which kind it is.
    pub fn kind(&self) -> CourierKind {
        match self.kind.load(Relaxed) {
            0 => CourierKind::Serial,
            2 => CourierKind::Invlpgb,
            _ => CourierKind::Concurrent,
        }
    }

    /// Chooses, before `init`. The two that interrupt serve the same protocol, so they may be exchanged for each other even
    /// while CPUs are online.
    ///
    /// # Panics
    ///
    /// If the choice comes after `init` and either the old or the new courier broadcasts: spaces might have global
    /// PCIDs, or CPUs their own.
    pub fn choose(&self, kind: CourierKind) {
        let broadcasts = |kind| kind == CourierKind::Invlpgb;
        let interrupts_only = !broadcasts(kind) && !broadcasts(self.kind());
        assert!(
            interrupts_only || !self.configured.load(Relaxed),
            "shootdown: {kind:?} was chosen after `init`: choose before it"
        );
        self.set(kind);
    }

    fn set(&self, kind: CourierKind) {
        self.kind.store(kind as u8, Relaxed);
    }
}
