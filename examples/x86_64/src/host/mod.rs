//! The hypervisor below the kernel: the real one, or, where there is none, a stand-in with the same interface.
//!
//! Either way the flusher is the same, reads the same CPUID leaves, writes the same MSRs and executes the same
//! hypercall instruction. The stand-in works from non-maskable interrupts, which reach a CPU between any two
//! instructions, as a hypervisor does:
//!
//! * **KVM**: now and then a CPU is stopped for a while: its byte `preempted` says so, and when it goes on, it first drops
//!   everything if, and only if, the guest has asked for that in the byte.
//! * **Hyper-V**: VMCALL and VMMCALL raise #UD. What the specification refuses is refused; else each processor that is
//!   named drops what the operands name, and nothing more, before the call returns. Now and then the host refuses for
//!   want of memory, as it may.

mod hyperv;
mod kvm;
mod msrs;
mod tlb;

use core::sync::atomic::{
    AtomicU8,
    Ordering::{Acquire, Release},
};

use hypervisor_emulation::cpuid::{self as leaves, Leaf};
use raw_cpuid::{CpuIdResult, native_cpuid::cpuid_count};
use shootdown::x86_64::{hyperv::HyperVFeatures, kvm::KvmFeatures};

pub(crate) use hyperv::emulate_hypercall;
pub use hyperv::{refuse_every, vp_index};
pub use kvm::{disturb, stop, stops};
pub use msrs::HostMsrs;
pub use tlb::skip_flushes;

use crate::percpu;

/// What a hypervisor offers to its guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Interface {
    /// KVM's.
    Kvm = 1,
    /// Hyper-V's.
    HyperV = 2,
}

/// The [`Interface`] that is stood in for, or 0.
static EMULATED: AtomicU8 = AtomicU8::new(0);

/// Decides, once, on the boot CPU, before the flusher is initialized: stands in for a hypervisor with `interface` where
/// there is no hypervisor but an emulator. Returns whether the interface is real.
pub fn start(interface: Interface) -> bool {
    let native = |leaf: u32, sub: u32| cpuid_count(leaf, sub);
    let real = match interface {
        Interface::Kvm => KvmFeatures::from_cpuid(&native).present,
        Interface::HyperV => HyperVFeatures::from_cpuid(&native).present,
    };
    // Another hypervisor would take the hypercalls itself.
    let nobody = cpuid_count(1, 0).ecx & leaves::HYPERVISOR == 0
        || cpuid_count(0x4000_0000, 0).ebx == u32::from_le_bytes(*b"TCGT");
    if !real && nobody {
        EMULATED.store(interface as u8, Release);
    }
    real
}

fn is_emulated(interface: Interface) -> bool {
    EMULATED.load(Acquire) == interface as u8
}

/// CPUID, with what the stand-in claims.
#[must_use]
pub fn cpuid(leaf: u32, sub: u32) -> CpuIdResult {
    let mut real = cpuid_count(leaf, sub);
    let claim: fn(u32) -> Option<Leaf> = match EMULATED.load(Acquire) {
        1 => leaves::kvm,
        2 => leaves::hyperv,
        _ => return real,
    };
    if leaf == 1 {
        real.ecx |= leaves::HYPERVISOR;
    }
    match claim(leaf) {
        Some([eax, ebx, ecx, edx]) => CpuIdResult { eax, ebx, ecx, edx },
        None => real,
    }
}

/// Does on this CPU what the host wants done. Returns whether there is a stand-in at all, so that an NMI is no surprise.
/// Called by the NMI handler.
pub(crate) fn serve_nmi() -> bool {
    let me = percpu::current();
    if is_emulated(Interface::Kvm) {
        kvm::stop_if_asked(me);
    } else if is_emulated(Interface::HyperV) {
        hyperv::serve(me);
    } else {
        return false;
    }
    true
}
