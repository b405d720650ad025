//! Couriers: how the CPUs that a flush must reach are told.
//!
//! ```text
//! courier      who is reached without an interrupt                     the rest
//! Serial       nobody                                                  interrupts, after the own TLB
//! Concurrent   nobody                                                  interrupts, before the own TLB
//! Kvm          vCPUs that are not running: flushed when they come back  as the courier underneath
//! HyperV       everybody whom the host knows, by a hypercall           as the courier underneath
//! ```
//!
//! A hypervisor of another kind is a [`Courier`] outside of this crate, see [`Courier::carry`].

mod any;
mod concurrent;
mod errand;
pub mod hyperv;
mod interrupt;
pub mod kvm;
mod leaves;
mod serial;

pub use any::{Any, CourierKind};
pub use concurrent::Concurrent;
pub use errand::{Errand, ErrandScope};
pub(super) use interrupt::interrupt;
pub use serial::Serial;

use core::ops::AddAssign;

use crate::cpus::CpuSet;

/// Tells other CPUs to serve. Everything else of the protocol is shared.
pub trait Courier: Sync + 'static {
    /// The courier before anything was configured.
    const INITIAL: Self;

    /// Whether [`carry`](Self::carry) does anything. Where it does not, nothing is noted for it.
    const CARRIES: bool = false;

    /// Whether the others are told first and the own TLB is flushed while they work; else the own TLB goes first.
    fn is_concurrent(&self) -> bool;

    /// Reaches those of `targets` that it can reach without an interrupt, and takes them out of the set. The others are
    /// interrupted and waited for.
    ///
    /// Called on CPU `me` with interrupts off, after the page-table change is visible to all CPUs and `targets` were
    /// chosen, and only if there are any; `me` is not among them.
    ///
    /// What an implementation must keep, or stale translations are used:
    ///
    /// * A CPU may be taken out only if it executes no further instruction with an entry that `errand` names, and, if
    ///   the errand [reaches lazy CPUs](Errand::reaches_lazy), does not walk through one speculatively either. When
    ///   this returns, that must be so for good, or be certain to happen before the CPU's next instruction.
    /// * More may be dropped than `errand` names, never less.
    /// * A word that the host takes from the guest must be changed by one atomic read-modify-write, and a CPU whose
    ///   word was not changed stays in the set.
    /// * On any failure the CPU stays in the set. A local flush is no substitute.
    ///
    /// CPUs that are taken out have not served: their generation stays behind, so that what they drop for the next flush,
    /// or when they load the space again, includes this one.
    fn carry<const W: usize>(
        &self,
        me: usize,
        errand: &Errand,
        targets: &mut CpuSet<W>,
    ) -> Carried {
        let _ = (me, errand, targets);
        Carried::default()
    }

    /// The protocol that was posted for waiting vCPUs, to show that it fails.
    #[cfg(any(loom, feature = "_sim"))]
    #[doc(hidden)]
    fn wait_as_posted(&self, _me: usize, _waits: bool) {}
}

/// What [`Courier::carry`] has done, for the [counters](crate::Counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Carried {
    /// CPUs that it took out of the set: see [`Counters::elided_by_host`](crate::Counters::elided_by_host).
    pub elided: u64,
    /// What it asked of the host: see [`Counters::host_requests`](crate::Counters::host_requests).
    pub requests: u64,
    /// What the host refused: see [`Counters::host_refusals`](crate::Counters::host_refusals).
    pub refusals: u64,
}

impl AddAssign for Carried {
    fn add_assign(&mut self, other: Self) {
        self.elided += other.elided;
        self.requests += other.requests;
        self.refusals += other.refusals;
    }
}
