//! Couriers: how the CPUs that a flush must reach are told.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::Instructions;
use crate::{
    atomic::Ordering::SeqCst,
    coverage::{Branch, took},
    cpus::CpuSet,
    platform::IpiPlatform,
    slot::{Asked, CpuSlot},
    variant::{Broken, broken},
};

/// Tells other CPUs to serve. Everything else of the protocol is shared.
pub trait Courier: Sync + 'static {
    /// The courier before anything was configured.
    const INITIAL: Self;

    /// Whether the others are told first and the own TLB is flushed while they work; else the own TLB goes first.
    fn is_concurrent(&self) -> bool;
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
}

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
    pub(super) fn choose(&self, kind: CourierKind) {
        self.kind.store(kind as u8, Relaxed);
    }
}

/// The CPUs that are to be interrupted.
#[derive(Clone, Copy)]
pub(super) struct Round<const W: usize> {
    send: CpuSet<W>,
    count: u64,
}

impl<const W: usize> Round<W> {
    /// All of `targets`, until [`ask`](Self::ask) finds that some need no interrupt.
    #[inline(always)]
    pub(super) const fn of(targets: CpuSet<W>) -> Self {
        Self {
            send: targets,
            count: 0,
        }
    }

    /// Asks a CPU to serve. The request itself was announced before. `more`: for the kernel's mappings.
    #[inline(always)]
    pub(super) fn ask(&mut self, slot: &CpuSlot, cpu: usize, more: bool, my: &CpuSlot) {
        // A full barrier on both sides: whoever finds the bit was before the target's own swap to 0, which is before the
        // target reads generations. So the target sees this request without another interrupt.
        let before = if more {
            slot.mail
                .pending
                .fetch_or(Asked::INTERRUPT | Asked::MORE, SeqCst)
        } else {
            slot.mail.pending.fetch_or(Asked::INTERRUPT, SeqCst)
        };
        if before & Asked::INTERRUPT == 0 {
            self.count += 1;
        } else {
            took(Branch::InterruptMerged);
            my.counters.elided_pending.add(1);
            self.send.take_out(cpu);
        }
    }

    /// Leaves out CPUs that are not targets.
    #[inline(always)]
    pub(super) fn keep(&mut self, targets: &CpuSet<W>) {
        self.send.keep(targets);
    }

    /// Sends the interrupts.
    #[inline(always)]
    pub(super) fn send<P: IpiPlatform, I: Instructions>(self, my: &CpuSlot) {
        if self.count != 0 {
            my.counters.ipis_sent.add(self.count);
            if !broken(Broken::NoPublish) {
                I::publish_before_ipi();
            }
            P::send_flush_ipi(self.send.view());
        }
    }
}

/// Asks each of `targets` to serve, and interrupts those that have no interrupt on its way already. `more`: for the
/// kernel's mappings.
pub(super) fn interrupt<P: IpiPlatform, I: Instructions, const W: usize>(
    targets: &CpuSet<W>,
    more: bool,
    my: &CpuSlot,
) {
    let mut round = Round::of(*targets);
    targets.for_each(|cpu| round.ask(P::slot(cpu), cpu, more, my));
    round.send::<P, I>(my);
}
