//! KVM: a vCPU that is not running needs no interrupt, for KVM drops its translations before it runs again.
//!
//! ```text
//! initiator                                   KVM
//! page-table change, full barrier             vCPU stops: PREEMPTED
//! PREEMPTED? one compare-exchange             vCPU enters: takes the byte and leaves 0, one exchange;
//!   s -> s | FLUSH_TLB                          FLUSH_TLB in it: everything is dropped first
//! changed: nothing to wait for
//! else: interrupt
//! ```
//!
//! The byte belongs to the host. It must be changed by ONE read-modify-write whose result counts: between a look and a plain
//! store the vCPU may have come back, and the request is lost (invariant 14; CVE-2019-3016 was the host's side of it).
//! Sources: Linux, Documentation/virt/kvm/x86/msr.rst and cpuid.rst, arch/x86/kernel/kvm.c, arch/x86/kvm/x86.c.
//!
//! # Set-up
//!
//! On the boot CPU, before others are online: [`KvmFeatures::from_cpuid`], then [`Kvm::enable`] through
//! [`Tlb::courier_ref`](crate::x86_64::Tlb::courier_ref). On each CPU [`enable_steal_time`] before it comes online and
//! [`disable_steal_time`] after it has gone offline, or before another kernel is started (kexec). Where anything is
//! missing, interrupts are sent.
//!
//! ```no_run
//! # mod kernel {
//! #     use shootdown::{CpuSlot, Cpus, IpiPlatform, Platform};
//! #     pub struct Kernel;
//! #     unsafe impl Platform for Kernel {
//! #         const CPUS: usize = 4;
//! #         fn current_cpu() -> usize { 0 }
//! #         fn pin() {}
//! #         fn unpin() {}
//! #         fn irq_save() -> usize { 0 }
//! #         fn irq_restore(_: usize) {}
//! #         fn slot(cpu: usize) -> &'static CpuSlot {
//! #             static SLOTS: [CpuSlot; 4] = [const { CpuSlot::new() }; 4];
//! #             &SLOTS[cpu]
//! #         }
//! #         fn relax() {}
//! #     }
//! #     unsafe impl IpiPlatform for Kernel {
//! #         fn send_flush_ipi(_: Cpus<'_>) {}
//! #     }
//! # }
//! # use kernel::Kernel;
//! # fn physical_address<T>(_: &T) -> u64 { 0 }
//! use shootdown::x86_64::{Hardware, Msrs, Tlb, kvm::{self, Kvm, KvmFeatures, KvmPlatform, StealTime}};
//!
//! static STEAL_TIMES: [StealTime; 4] = [const { StealTime::new() }; 4];
//!
//! // SAFETY: each CPU has its own.
//! unsafe impl KvmPlatform for Kernel {
//!     fn steal_time(cpu: usize) -> &'static StealTime {
//!         &STEAL_TIMES[cpu]
//!     }
//! }
//!
//! static TLB: Tlb<Kernel, Kvm<Kernel>> = Tlb::new();
//!
//! /// On the boot CPU, after `TLB.init`: says whether this is a guest of KVM that can do it.
//! fn detect(cpuid: &impl raw_cpuid::CpuIdReader) -> bool {
//!     TLB.courier_ref().enable(&KvmFeatures::from_cpuid(cpuid), 4).is_ok()
//! }
//!
//! /// On each CPU, before `TLB.online()`.
//! fn set_up<M: Msrs>(cpu: usize) {
//!     if TLB.courier_ref().is_enabled() {
//!         let page = &STEAL_TIMES[cpu];
//!         // SAFETY: KVM offers it, and the page is this CPU's.
//!         unsafe { kvm::enable_steal_time::<M>(page, physical_address(page)) };
//!     }
//! }
//! ```

mod features;
mod steal_time;

use core::{
    marker::PhantomData,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

pub use features::{KvmFeatures, KvmMissing};
pub use steal_time::{StealTime, disable_steal_time, enable_steal_time};

use steal_time::FlushOnEntry;

use super::{Carried, Concurrent, Courier, Errand, ErrandScope};
use crate::x86_64::{Config, InitError, broadcast::Broadcast};
use crate::{
    coverage::{Branch, took},
    cpus::CpuSet,
};

/// What the kernel supplies for [`Kvm`].
///
/// # Safety
///
/// Implementations must keep what the function's section "Implementation safety" asks for.
pub unsafe trait KvmPlatform: 'static {
    /// The steal-time structure of `cpu`, a CPU that has come online: in the kernel's own per-CPU memory, or an element
    /// of a static array.
    ///
    /// # Implementation safety
    ///
    /// Must give the same structure for each CPU every time, a distinct one for each; it was given to
    /// [`enable_steal_time`] on that CPU or on none.
    fn steal_time(cpu: usize) -> &'static StealTime;
}

/// Marks vCPUs that are not running, for KVM to flush, and leaves the others to `C`.
#[derive(Debug)]
pub struct Kvm<H, C = Concurrent> {
    under: C,
    enabled: AtomicBool,
    /// Preempted vCPUs are interrupted if tables were freed or attributes changed.
    strict: AtomicBool,
    _platform: PhantomData<fn() -> H>,
}

// SAFETY: a CPU is taken out only once its byte has FLUSH_TLB by a compare-exchange that found PREEMPTED: the host flushes
// it before its next instruction, all PCIDs included. The rest is the business of the courier underneath.
unsafe impl<H: KvmPlatform, C: Courier> Courier for Kvm<H, C> {
    const INITIAL: Self = Self {
        under: C::INITIAL,
        enabled: AtomicBool::new(false),
        strict: AtomicBool::new(false),
        _platform: PhantomData,
    };

    const CARRIES: bool = true;

    fn is_concurrent(&self) -> bool {
        self.under.is_concurrent()
    }

    #[inline(always)]
    fn broadcast(&self) -> Option<&Broadcast> {
        self.under.broadcast()
    }

    fn check(&self, config: &Config) -> Result<(), InitError> {
        self.under.check(config)
    }

    fn configure(&self, config: &Config) {
        self.under.configure(config);
    }

    #[inline]
    fn carry<const W: usize>(
        &self,
        me: usize,
        errand: &Errand,
        targets: &mut CpuSet<W>,
    ) -> Carried {
        let mut carried = Carried::default();
        if self.takes(errand) {
            let all = *targets;
            for cpu in all.iter() {
                match H::steal_time(cpu).request_flush() {
                    FlushOnEntry::Requested => carried.requests += 1,
                    FlushOnEntry::RequestedBefore => {}
                    FlushOnEntry::Running => continue,
                    FlushOnEntry::CameBack => {
                        carried.refusals += 1;
                        continue;
                    }
                }
                if errand.reaches_lazy() {
                    took(Branch::PreemptedFreed);
                }
                carried.elided += 1;
                targets.remove(cpu);
            }
        }
        if C::CARRIES && !targets.is_empty() {
            carried += self.under.carry(me, errand, targets);
        }
        carried
    }

    #[cfg(any(loom, feature = "_sim"))]
    fn wait_as_posted(&self, me: usize, waits: bool) {
        H::steal_time(me).wait_as_posted(waits);
    }
}

impl<H: KvmPlatform, C: Courier> Kvm<H, C> {
    /// From now on vCPUs that are not running are marked instead of interrupted. `cpus` is how many CPUs there are.
    ///
    /// # Errors
    ///
    /// If the host lacks something, or a single CPU has nobody to reach: then nothing changes, and interrupts are
    /// sent.
    pub fn enable(&self, features: &KvmFeatures, cpus: usize) -> Result<(), KvmMissing> {
        features.check(cpus)?;
        self.enabled.store(true, Relaxed);
        Ok(())
    }

    /// The courier for vCPUs that are running.
    pub const fn under(&self) -> &C {
        &self.under
    }

    /// From now on every CPU is interrupted.
    pub fn disable(&self) {
        self.enabled.store(false, Relaxed);
    }

    /// Whether vCPUs are marked.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    /// Whether a vCPU that is not running is spared the interrupt when page tables were freed or attributes changed, too.
    /// On unless turned off.
    ///
    /// It rests on this behaviour of the host: PREEMPTED is set only when the vCPU has stopped between two instructions,
    /// and nothing that it cached before is used, not even by speculation, between its next entry and the flush on that
    /// entry. KVM does so since Linux 5.18 (commit 6cd88243c7e0: PREEMPTED is not reported where the vCPU stopped in
    /// the midst of an emulated instruction, which holds translations). Turn it off where the host may be older, or
    /// is not KVM but says so.
    pub fn elide_freed_tables(&self, elide: bool) {
        self.strict.store(!elide, Relaxed);
    }

    /// Whether this errand may be left to the host. Not for the kernel's mappings: what is promised for them is the same
    /// on all hosts, that every CPU has served.
    fn takes(&self, errand: &Errand) -> bool {
        if !self.is_enabled() || errand.scope() == ErrandScope::Kernel {
            return false;
        }
        !(errand.reaches_lazy() && self.strict.load(Relaxed))
    }
}
