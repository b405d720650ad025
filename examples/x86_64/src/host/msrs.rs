//! The MSRs of the hypervisor.

use shootdown::x86_64::{Hardware, Msrs};

use super::{Interface, hyperv, is_emulated, kvm};

/// The CPU's MSRs, with those of the stand-in.
#[derive(Debug)]
pub struct HostMsrs;

// SAFETY: what the stand-in does not have is the CPU's own.
unsafe impl Msrs for HostMsrs {
    unsafe fn read(register: u32) -> u64 {
        if is_emulated(Interface::HyperV) {
            return hyperv::read_msr(register);
        }
        // SAFETY: promised by the caller.
        unsafe { Hardware::read(register) }
    }

    unsafe fn write(register: u32, value: u64) {
        if is_emulated(Interface::Kvm) {
            kvm::write_msr(register, value);
        } else if is_emulated(Interface::HyperV) {
            hyperv::write_msr(register, value);
        } else {
            // SAFETY: promised by the caller.
            unsafe { Hardware::write(register, value) };
        }
    }
}
