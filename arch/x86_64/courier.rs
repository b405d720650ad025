//! Couriers: how the CPUs that a flush must reach are told.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::{
    Config, InitError, Instructions,
    broadcast::{Broadcast, Home},
};
use crate::{
    atomic::Ordering::SeqCst,
    coverage::{Branch, took},
    cpus::CpuSet,
    platform::IpiPlatform,
    slot::CpuSlot,
    variant::{Broken, broken},
};

/// Tells other CPUs to serve. Everything else of the protocol is shared.
pub trait Courier: Sync + 'static {
    /// The courier before anything was configured.
    const INITIAL: Self;

    /// Whether the others are told first and the own TLB is flushed while they work; else the own TLB goes first.
    fn is_concurrent(&self) -> bool;

    /// What broadcasting needs, where hardware reaches the CPUs.
    #[inline(always)]
    fn broadcast(&self) -> Option<&Broadcast> {
        None
    }

    /// Whether the courier can work with `config`.
    ///
    /// # Errors
    ///
    /// Says what is missing, see [`InitError`].
    fn check(&self, config: &Config) -> Result<(), InitError> {
        let _ = config;
        Ok(())
    }

    /// Takes what it needs from `config`, which it has checked. Called once, before any CPU is online.
    fn configure(&self, config: &Config) {
        let _ = config;
    }
}

/// One after the other: flushes the own TLB, then sends interrupts and waits.
#[derive(Debug, Default)]
pub struct Serial;

/// Sends interrupts, flushes the own TLB while they are on their way, then waits (Amit, 2019; Linux 5.13).
#[derive(Debug, Default)]
pub struct Concurrent;

/// A courier chosen when the flusher is initialized.
#[derive(Debug)]
pub struct Any {
    kind: AtomicU8,
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
    /// [`Serial`].
    Serial = 0,
    /// [`Concurrent`].
    Concurrent = 1,
    /// [`Broadcasting`](super::Broadcasting), with concurrent interrupts below the threshold.
    Invlpgb = 2,
}

impl Courier for Serial {
    const INITIAL: Self = Self;

    fn is_concurrent(&self) -> bool {
        false
    }
}

impl Courier for Concurrent {
    const INITIAL: Self = Self;

    fn is_concurrent(&self) -> bool {
        true
    }
}

impl Courier for Any {
    const INITIAL: Self = Self {
        kind: AtomicU8::new(UNDECIDED),
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
            self.choose(if config.features().invlpgb.is_some() {
                CourierKind::Invlpgb
            } else {
                CourierKind::Concurrent
            });
        }
        self.broadcast.get().configure(config);
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

    /// Chooses. Serial and concurrent serve the same protocol, so they may even be exchanged while CPUs are online.
    pub(super) fn choose(&self, kind: CourierKind) {
        self.kind.store(kind as u8, Relaxed);
    }
}

/// Interrupts each target that has no interrupt on its way already. The requests themselves were announced before.
#[inline]
pub(super) fn interrupt<P: IpiPlatform, I: Instructions, const W: usize>(
    targets: &CpuSet<W>,
    my: &CpuSlot,
) {
    let mut send = CpuSet::<W>::EMPTY;
    let mut sent = 0;
    for cpu in targets.iter() {
        // A full barrier on both sides: whoever finds 1 was before the target's own swap to 0, which is before the
        // target reads generations. So the target sees this request without another interrupt.
        if P::slot(cpu).mail.pending.swap(1, SeqCst) == 0 {
            send.add(cpu);
            sent += 1;
        } else {
            took(Branch::InterruptMerged);
            my.counters.elided_pending.add(1);
        }
    }
    if sent != 0 {
        my.counters.ipis_sent.add(sent);
        if !broken(Broken::NoPublish) {
            I::publish_before_ipi();
        }
        P::send_flush_ipi(send.view());
    }
}
