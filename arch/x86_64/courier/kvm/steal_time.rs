//! [`StealTime`]: the page that a vCPU shares with KVM, and its byte `preempted`.

use core::sync::atomic::{
    AtomicU32 as HostU32, AtomicU64 as HostU64,
    Ordering::{Acquire as HostAcquire, Relaxed as HostRelaxed},
    fence as host_fence,
};

use crate::{
    atomic::{
        AtomicU8,
        Ordering::{AcqRel, Acquire, Relaxed},
        const_unless_loom,
    },
    coverage::{Branch, took},
    variant::{Broken, broken},
    x86_64::Msrs,
};

/// The vCPU is not running. Set and cleared by the host.
const PREEMPTED: u8 = 1 << 0;
/// Drop everything before the vCPU runs again. Set by the guest, taken by the host.
const FLUSH_TLB: u8 = 1 << 1;
/// MSR_KVM_STEAL_TIME: the physical address of the structure, bit 0 enables it.
const MSR_STEAL_TIME: u32 = 0x4b56_4d03;
const ENABLED: u64 = 1;

/// A vCPU's steal-time structure, as KVM lays it out (struct kvm_steal_time; Linux,
/// Documentation/virt/kvm/x86/msr.rst). The kernel places it; see [`KvmPlatform`](super::KvmPlatform).
#[derive(Debug)]
#[repr(C, align(64))]
pub struct StealTime {
    steal: HostU64,
    version: HostU32,
    flags: HostU32,
    preempted: AtomicU8,
    _reserved: [u8; 47],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<StealTime>() == 64);
    assert!(core::mem::offset_of!(StealTime, preempted) == 16);
};

/// What became of a request to flush a vCPU on its next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushOnEntry {
    /// The host will, since this request.
    Requested,
    /// The host will, since an earlier one that it has not yet taken.
    RequestedBefore,
    /// The vCPU runs.
    Running,
    /// The vCPU came back just now.
    CameBack,
}

impl StealTime {
    const_unless_loom! {
        /// A structure that says: running.
        #[allow(clippy::new_without_default)]
        pub fn new() -> Self {
            Self {
                steal: HostU64::new(0),
                version: HostU32::new(0),
                flags: HostU32::new(0),
                preempted: AtomicU8::new(0),
                _reserved: [0; 47],
            }
        }
    }

    /// How long this vCPU was ready but did not run, in nanoseconds.
    pub fn stolen_ns(&self) -> u64 {
        loop {
            // Odd while the host writes, another number after it has written.
            let before = self.version.load(HostAcquire);
            let steal = self.steal.load(HostRelaxed);
            host_fence(HostAcquire);
            if before & 1 == 0 && self.version.load(HostRelaxed) == before {
                return steal;
            }
            core::hint::spin_loop();
        }
    }

    /// Whether the vCPU is not running: a hint, for it may come back at any time.
    pub fn is_preempted(&self) -> bool {
        self.preempted.load(Relaxed) & PREEMPTED != 0
    }

    /// Asks the host to drop everything before this vCPU runs again, if it is not running now.
    ///
    /// The page-table change is visible before: a full barrier is behind the caller. So whichever way the exchange on entry
    /// and this one fall, either the host sees the request, and what the vCPU walks after the flush is new, or this fails.
    #[inline]
    pub(super) fn request_flush(&self) -> FlushOnEntry {
        let seen = self.preempted.load(Acquire);
        let posted = broken(Broken::WaitAsPosted) && seen & IN_PVWAIT != 0;
        if seen & PREEMPTED == 0 && !posted {
            took(Branch::PreemptedNot);
            return FlushOnEntry::Running;
        }
        if broken(Broken::PreemptedSkippedUnmarked) {
            return FlushOnEntry::RequestedBefore;
        }
        if broken(Broken::PreemptedPlainStore) {
            self.preempted.store(seen | FLUSH_TLB, Relaxed);
            return FlushOnEntry::Requested;
        }
        // AcqRel: the change comes before; what is reused afterwards, after. It changes nothing from 3 to 3, but must be made
        // nevertheless: only its success says that the host has not taken the other's request yet.
        let marked = self
            .preempted
            .compare_exchange(seen, seen | FLUSH_TLB, AcqRel, Relaxed);
        match marked {
            Ok(_) if seen & FLUSH_TLB != 0 => {
                took(Branch::PreemptedMarkedBefore);
                FlushOnEntry::RequestedBefore
            }
            Ok(_) => {
                took(Branch::PreemptedMarked);
                FlushOnEntry::Requested
            }
            Err(_) if broken(Broken::PreemptedResultIgnored) => FlushOnEntry::Requested,
            Err(_) => {
                took(Branch::PreemptedCameBack);
                FlushOnEntry::CameBack
            }
        }
    }
}

/// Hands `page` to KVM as this CPU's steal-time structure. Call it on the CPU before it comes online.
///
/// # Panics
///
/// If `physical` is not a multiple of 64.
///
/// # Safety
///
/// KVM must offer steal time. `physical` must be the (guest-)physical address of `page`, in ordinary memory that the host
/// can write, and `page` must be no other CPU's.
pub unsafe fn enable_steal_time<M: Msrs>(page: &'static StealTime, physical: u64) {
    assert!(
        physical.is_multiple_of(64),
        "shootdown: a steal-time structure at {physical:#x}: it must be aligned to 64 bytes"
    );
    // What a kernel before this one left is not the host's.
    page.preempted.store(0, Relaxed);
    // SAFETY: the caller vouches for the address, and that KVM has the register.
    unsafe { M::write(MSR_STEAL_TIME, physical | ENABLED) };
}

/// Takes the structure back from KVM. Call it on the CPU that it belongs to, after it has gone offline, or before
/// another kernel starts: otherwise the host goes on to write to memory that may have another use.
///
/// # Safety
///
/// KVM must offer steal time.
pub unsafe fn disable_steal_time<M: Msrs>(page: &'static StealTime) {
    // SAFETY: the caller vouches that KVM has the register; 0 turns it off.
    unsafe { M::write(MSR_STEAL_TIME, 0) };
    // The host does not clear it any more.
    page.preempted.store(0, Relaxed);
}

/// The protocol that was posted for waiting vCPUs ("Para-virtualized TLB flush for PV-waiting vCPUs", Ishiguro, 2025):
/// a flag of the guest's own in the host's byte.
const IN_PVWAIT: u8 = 1 << 2;

/// For proofs.
#[cfg(any(loom, feature = "_sim"))]
impl StealTime {
    /// Sets the posted flag before the vCPU halts, or clears it afterwards.
    pub(super) fn wait_as_posted(&self, waits: bool) {
        if waits {
            self.preempted.fetch_or(IN_PVWAIT, AcqRel);
        } else {
            self.preempted.fetch_and(!IN_PVWAIT, AcqRel);
        }
    }

    /// The host stops the vCPU.
    #[doc(hidden)]
    pub fn host_stops(&self) {
        self.preempted.fetch_or(PREEMPTED, AcqRel);
    }

    /// The host lets the vCPU run again: says whether it must drop everything first.
    #[doc(hidden)]
    pub fn host_enters(&self) -> bool {
        self.preempted.swap(0, AcqRel) & FLUSH_TLB != 0
    }
}

/// For the simulated machine, whose hypervisor owns the byte.
#[cfg(all(feature = "_sim", not(loom)))]
impl StealTime {
    /// The byte `preempted`.
    #[doc(hidden)]
    pub const fn preempted_byte(&self) -> &core::sync::atomic::AtomicU8 {
        self.preempted.native()
    }
}
