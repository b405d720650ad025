//! The kernel as a guest of KVM: what a real kernel would write once.

use core::{ptr::from_ref, sync::atomic::AtomicU8};

use shootdown::x86_64::kvm::{KvmFeatures, KvmPlatform, StealTime, enable_steal_time};

use crate::{
    MAX_CPUS,
    host::{self, HostMsrs, Interface},
    percpu,
};

static STEAL_TIME: [StealTime; MAX_CPUS] = [const { StealTime::new() }; MAX_CPUS];

/// This kernel, as KVM's courier sees it.
#[derive(Debug)]
pub struct KvmGuest;

// SAFETY: a static array, one element a CPU; each CPU enables its own before it comes online.
unsafe impl KvmPlatform for KvmGuest {
    #[inline]
    fn steal_time(cpu: usize) -> &'static StealTime {
        &STEAL_TIME[cpu]
    }
}

/// Finds KVM, or stands in for it: what it offers, and whether it is real.
pub fn features() -> (KvmFeatures, bool) {
    let real = host::start(Interface::Kvm);
    (KvmFeatures::from_cpuid(&host::cpuid), real)
}

/// Has this CPU take part, before it comes online.
pub fn prepare_cpu(features: &KvmFeatures) {
    if features.steal_time {
        let page = &STEAL_TIME[percpu::current()];
        // SAFETY: KVM offers it; the kernel's statics are identity mapped in ordinary memory, and this one is this CPU's.
        unsafe { enable_steal_time::<HostMsrs>(page, from_ref(page).expose_provenance() as u64) };
    }
}

/// How many CPUs the host has been asked to flush but has not let run since.
pub fn outstanding() -> usize {
    /// See `struct kvm_steal_time`.
    const PREEMPTED_OFFSET: usize = 16;
    const FLUSH_TLB: u8 = 1 << 1;
    let asked = |page: &&StealTime| {
        let byte = from_ref(*page)
            .cast::<u8>()
            .wrapping_add(PREEMPTED_OFFSET)
            .expose_provenance();
        // SAFETY: inside a static that is only ever accessed by atomics; the host writes it too.
        let byte = unsafe { AtomicU8::from_ptr(core::ptr::with_exposed_provenance_mut(byte)) };
        byte.load(core::sync::atomic::Ordering::Acquire) & FLUSH_TLB != 0
    };
    STEAL_TIME.iter().filter(asked).count()
}
