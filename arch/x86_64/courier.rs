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
//! A hypervisor of another kind is a [`Courier`] outside of this crate.

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
pub(super) use interrupt::{Round, interrupt};
pub use serial::Serial;

use core::ops::AddAssign;

use super::{Config, InitError, broadcast::Broadcast};
use crate::cpus::CpuSet;

/// Tells other CPUs to serve. Everything else of the protocol is shared.
///
/// This is where a hypervisor of another kind (Xen, VMware, one's own) comes in: a kernel implements the trait on a type of
/// its own, which has one of the couriers here underneath for the CPUs that it can't reach, and names it in the
/// flusher's type, [`Tlb<P, ThatType>`](crate::x86_64::Tlb). [`carry`](Self::carry) is all there is to write:
///
/// ```
/// use shootdown::{CpuSet, x86_64::{Carried, Concurrent, Courier, Errand, ErrandScope}};
///
/// /// The host's call: drops everything of the root on the CPUs in the mask; false if it does not.
/// fn host_flush(root: u64, cpus: u64) -> bool {
/// #   let _ = (root, cpus);
///     // ...
/// #   true
/// }
///
/// #[derive(Debug)]
/// struct Hypervisor(Concurrent);
///
/// // SAFETY: the host says yes only after the CPUs have dropped everything of the space, tables included.
/// unsafe impl Courier for Hypervisor {
///     const INITIAL: Self = Self(Concurrent);
///     const CARRIES: bool = true;
///
///     fn is_concurrent(&self) -> bool {
///         self.0.is_concurrent()
///     }
///
///     fn carry<const W: usize>(&self, _: usize, errand: &Errand, targets: &mut CpuSet<W>) -> Carried {
///         let mut carried = Carried::default();
///         // All that this host can do: one space. The rest gets interrupts.
///         let ErrandScope::Space { root } = errand.scope() else { return carried };
///         // It knows the first 64 CPUs only.
///         let cpus = targets.view().words()[0];
///         carried.requests = 1;
///         if host_flush(root, cpus) {
///             carried.elided = u64::from(cpus.count_ones());
///             (0..64).for_each(|cpu| targets.remove(cpu));
///         } else {
///             carried.refusals = 1;
///         }
///         carried
///     }
/// }
/// ```
///
/// `tests/host/hypervisor.rs` has a whole one, with a made-up host.
///
/// # Safety
///
/// [`carry`](Self::carry) must keep what its section "Implementation safety" asks for: a CPU that is taken out too early
/// uses stale translations.
pub unsafe trait Courier: Sync + 'static {
    /// The courier before anything was configured.
    const INITIAL: Self;

    /// Whether [`carry`](Self::carry) does anything. Where it does not, nothing is noted for it.
    const CARRIES: bool = false;

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

    /// Reaches those of `targets` that it can reach without an interrupt, and takes them out of the set. The others are
    /// interrupted and waited for.
    ///
    /// Called on CPU `me` with interrupts off, after the page-table change is visible to all CPUs and `targets` were
    /// chosen, and only if there are any; `me` is not among them. It must not wait for another CPU.
    ///
    /// CPUs that are taken out have not served: their generation stays behind, so that what they drop for the next flush,
    /// or when they load the space again, includes this one.
    ///
    /// # Implementation safety
    ///
    /// * A CPU may be taken out only if it executes no further instruction with an entry that `errand` names, and, if
    ///   the errand [reaches lazy CPUs](Errand::reaches_lazy), does not walk through one speculatively either. When
    ///   this returns, that must be so for good, or be certain to happen before the CPU's next instruction.
    /// * It may have loaded another space when the host acts: what is dropped is of the errand's space, under whichever
    ///   PCID, not of the space that is loaded.
    /// * More may be dropped than `errand` names, never less. [`ErrandScope::Kernel`] includes global entries and
    ///   all PCIDs; freed tables include paging-structure caches.
    /// * A word that the host takes from the guest must be changed by one atomic read-modify-write, and a CPU whose
    ///   word was not changed stays in the set.
    /// * On any failure the CPU stays in the set. A local flush is no substitute.
    /// * No CPU is added.
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
