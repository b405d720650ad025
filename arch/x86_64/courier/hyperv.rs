//! Hyper-V: one hypercall drops translations on every virtual processor that it names, running or not.
//!
//! ```text
//! errand            processors below 64      any processor
//! a range           LIST     (0x0003)        LIST_EX  (0x0014)
//! everything        SPACE    (0x0002)        SPACE_EX (0x0013)
//! ```
//!
//! The call is synchronous: when it returns with success, the processors have dropped what it names, so none of them is
//! waited for. Whom the call can't name, and everybody if it fails, gets an interrupt.
//!
//! A processor is named by its VP index, which is neither its APIC id nor its CPU number. Source: Hypervisor Top Level
//! Functional Specification (TLFS), "Virtual MMU", "Hypercall Interface".
//!
//! # Set-up
//!
//! On the boot CPU, before others are online: [`HyperVFeatures::from_cpuid`], [`enable_hypercalls`], then
//! [`HyperV::enable`] through [`Tlb::courier_ref`](crate::x86_64::Tlb::courier_ref). On each CPU, before it comes
//! online, [`vp_index`] is read and kept for [`HyperVPlatform::vp_index`].
//!
//! ```no_run
//! use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
//! use shootdown::x86_64::{Msrs, hyperv::{self, HyperVPlatform, Hypercall, InputPage}};
//! # const NO_CPU: u32 = u32::MAX;
//! # struct Call;
//! # unsafe impl Hypercall for Call {
//! #     unsafe fn call(_: u64, _: u64) -> u64 { 2 }
//! # }
//! # fn physical_address<T>(_: &T) -> u64 { 0 }
//!
//! static VP_INDICES: [AtomicU32; 4] = [const { AtomicU32::new(NO_CPU) }; 4];
//! static INPUT: [InputPage; 4] = [const { InputPage::new() }; 4];
//!
//! struct Guest;
//!
//! // SAFETY: each CPU has its own page, and its index once it has read it.
//! unsafe impl HyperVPlatform for Guest {
//!     type Call = Call; // `hyperv::ThroughPage` in a kernel
//!
//!     fn vp_index(cpu: usize) -> Option<u32> {
//!         Some(VP_INDICES[cpu].load(Relaxed)).filter(|index| *index != NO_CPU)
//!     }
//!
//!     fn input(cpu: usize) -> Option<(&'static InputPage, u64)> {
//!         Some((&INPUT[cpu], physical_address(&INPUT[cpu])))
//!     }
//! }
//!
//! /// On the boot CPU: `page` is a free page's physical address, mapped executable. It may be another one afterwards.
//! fn set_up<M: Msrs>(page: u64) -> u64 {
//!     let me = hyperv::open_source_guest(0x70, 1, 0);
//!     // SAFETY: `HyperVFeatures::check` has said yes.
//!     match unsafe { hyperv::enable_hypercalls::<M>(me, page) } {
//!         Ok(()) => page,
//!         Err(locked) => locked,
//!     }
//! }
//!
//! /// On each CPU, before `online`.
//! fn note_index<M: Msrs>(cpu: usize) {
//!     // SAFETY: as above.
//!     VP_INDICES[cpu].store(unsafe { hyperv::vp_index::<M>() }, Relaxed);
//! }
//! ```

mod call;
mod control;
mod features;
mod input;
#[cfg(target_arch = "x86_64")]
pub(super) mod page;
mod setup;
mod vp_set;

use core::{
    marker::PhantomData,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

pub use control::{Control, FlushCode, FlushFlags, Outcome};
pub use features::{HyperVFeatures, HyperVMissing};
pub use input::InputPage;
#[cfg(target_arch = "x86_64")]
pub use page::ThroughPage;
pub use setup::{disable_hypercalls, enable_hypercalls, open_source_guest, vp_index};

use super::{Carried, Concurrent, Courier, Errand};
use crate::x86_64::{Config, InitError, broadcast::Broadcast};
use crate::{
    coverage::{Branch, took},
    cpus::CpuSet,
};

/// Makes hypercalls. On the real machine that is `ThroughPage`; tests and kernels may supply their own.
///
/// # Safety
///
/// Implementations must keep what the function's section "Implementation safety" asks for.
pub unsafe trait Hypercall: 'static {
    /// Makes the hypercall that `control` describes ([`Control`]), with its input at the guest-physical address `input`
    /// and no output, and gives the result value ([`Outcome`]).
    ///
    /// # Implementation safety
    ///
    /// Must give status 0 only if the hypervisor has done what was asked, and must be neither removed nor moved
    /// across memory accesses by the compiler.
    ///
    /// # Safety
    ///
    /// The input must be what the call asks for, and the call must not affect memory that is in use.
    unsafe fn call(control: u64, input: u64) -> u64;
}

/// What the kernel supplies for [`HyperV`].
///
/// # Safety
///
/// Implementations must keep what each function's section "Implementation safety" asks for.
pub unsafe trait HyperVPlatform: 'static {
    /// How hypercalls are made.
    type Call: Hypercall;

    /// The VP index of `cpu`, as [`vp_index`] gave it on that CPU; `None` if it is not known: then that CPU is
    /// interrupted.
    ///
    /// # Implementation safety
    ///
    /// Must be the index of that CPU, or a translation is dropped elsewhere and used here.
    fn vp_index(cpu: usize) -> Option<u32>;

    /// The input page of `cpu` and its guest-physical address; `None` if it has none: then it sends interrupts.
    ///
    /// # Implementation safety
    ///
    /// Each CPU must have its own, in ordinary memory, and the address must be the page's. It must be used for nothing
    /// else while interrupts are off and a flush is under way on that CPU.
    fn input(cpu: usize) -> Option<(&'static InputPage, u64)>;
}

/// Flushes by hypercall, and leaves whom it can't reach to `C`.
#[derive(Debug)]
pub struct HyperV<H, C = Concurrent> {
    under: C,
    /// [`ENABLED`], [`SETS`], and the last status that the host refused with from bit 16.
    state: AtomicU32,
    _platform: PhantomData<fn() -> H>,
}

/// Hypercalls are used.
const ENABLED: u32 = 1 << 0;
/// Calls that take a set of banks are used.
const SETS: u32 = 1 << 1;

// SAFETY: CPUs are taken out only when the host says that the processors of their indices have dropped what the operands
// name, which is at least the errand. The rest is the business of the courier underneath.
unsafe impl<H: HyperVPlatform, C: Courier> Courier for HyperV<H, C> {
    const INITIAL: Self = Self {
        under: C::INITIAL,
        state: AtomicU32::new(0),
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
        let mut carried = self.call(me, errand, targets);
        if C::CARRIES && !targets.is_empty() {
            carried += self.under.carry(me, errand, targets);
        }
        carried
    }
}

impl<H: HyperVPlatform, C: Courier> HyperV<H, C> {
    /// From now on other CPUs are flushed by hypercall. `cpus` is how many CPUs there are.
    ///
    /// # Errors
    ///
    /// If the host lacks something or advises against it, or a single CPU has nobody to reach: then nothing changes, and
    /// interrupts are sent.
    pub fn enable(&self, features: &HyperVFeatures, cpus: usize) -> Result<(), HyperVMissing> {
        features.check(cpus)?;
        let sets = if features.processor_sets { SETS } else { 0 };
        self.state.store(ENABLED | sets, Relaxed);
        Ok(())
    }

    /// The courier for CPUs that the host does not reach.
    pub const fn under(&self) -> &C {
        &self.under
    }

    /// From now on every CPU is interrupted.
    pub fn disable(&self) {
        self.state.fetch_and(!(ENABLED | SETS), Relaxed);
    }

    /// Whether hypercalls are made.
    pub fn is_enabled(&self) -> bool {
        self.state.load(Relaxed) & ENABLED != 0
    }

    /// The status with which the host has last refused a flush (HV_STATUS; TLFS, "Hypercall Status Codes"), if it ever
    /// has. How often is [`Counters::host_refusals`](crate::Counters::host_refusals).
    pub fn last_refusal(&self) -> Option<u16> {
        let status = (self.state.load(Relaxed) >> 16) as u16;
        (status != 0).then_some(status)
    }

    fn note_refusal(&self, status: u16) {
        let keep = |state| Some(state & (ENABLED | SETS) | u32::from(status) << 16);
        let _ = self.state.fetch_update(Relaxed, Relaxed, keep);
    }

    fn call<const W: usize>(&self, me: usize, errand: &Errand, targets: &mut CpuSet<W>) -> Carried {
        let mut carried = Carried::default();
        let state = self.state.load(Relaxed);
        if state & ENABLED == 0 {
            return carried;
        }
        let Some((page, address)) = H::input(me) else {
            return carried;
        };
        let Some(named) = call::name::<H, W>(page, targets, state & SETS != 0) else {
            return carried;
        };
        let request = call::describe(page, errand, named.words);
        carried.requests += 1;
        match call::make::<H::Call>(&request, address) {
            Ok(()) => {
                carried.elided += named.cpus.len() as u64;
                for cpu in named.cpus.iter() {
                    targets.remove(cpu);
                }
            }
            Err(status) => {
                took(Branch::HypervRefused);
                carried.refusals += 1;
                self.note_refusal(status);
            }
        }
        carried
    }
}
