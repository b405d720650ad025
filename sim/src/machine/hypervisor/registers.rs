//! The hypervisor's model-specific registers, as the running CPU reads and writes them.

use super::Kind;
use crate::machine::{Machine, current::with, scheduler::point};

/// KVM's MSR_KVM_STEAL_TIME.
const STEAL_TIME: u32 = 0x4b56_4d03;
/// HV_X64_MSR_GUEST_OS_ID, HV_X64_MSR_HYPERCALL, HV_X64_MSR_VP_INDEX.
const GUEST_ID: u32 = 0x4000_0000;
const HYPERCALL_PAGE: u32 = 0x4000_0001;
const PROCESSOR_INDEX: u32 = 0x4000_0002;

impl Machine {
    fn kind(&self) -> Option<Kind> {
        self.hypervisor.as_ref().map(|hypervisor| hypervisor.kind)
    }

    /// Whether hypercalls can be made: the guest has said what it is, then asked for the page.
    pub(super) fn hypercalls_enabled(&self) -> bool {
        self.hypervisor
            .as_ref()
            .is_some_and(|it| it.guest_id != 0 && it.hypercall_page & 1 != 0)
    }

    fn write_msr(&mut self, register: u32, value: u64) {
        self.note(|_| format!("wrmsr {register:#x}"));
        match (self.kind(), register) {
            (Some(Kind::Kvm), STEAL_TIME) => {
                self.write_steal_time(value);
            }
            (Some(Kind::HyperV { .. }), GUEST_ID | HYPERCALL_PAGE) => {
                if let Some(hypervisor) = &mut self.hypervisor {
                    if register == GUEST_ID {
                        hypervisor.guest_id = value;
                    } else if hypervisor.guest_id != 0 {
                        // Without a guest id the enable bit stays clear.
                        hypervisor.hypercall_page = value;
                    }
                }
            }
            _ => self.fail(format!("#GP: wrmsr {register:#x} = {value:#x}")),
        }
    }

    fn read_msr(&mut self, register: u32) -> u64 {
        let cpu = self.current;
        match &self.hypervisor {
            Some(it) if it.kind != Kind::Kvm => match register {
                GUEST_ID => return it.guest_id,
                HYPERCALL_PAGE => return it.hypercall_page,
                PROCESSOR_INDEX => return u64::from(it.indices[cpu]),
                _ => {}
            },
            _ => {}
        }
        self.fail(format!("#GP: rdmsr {register:#x}"));
        0
    }
}

/// RDMSR.
pub(crate) fn read_msr(register: u32) -> u64 {
    point();
    with(|m| m.read_msr(register))
}

/// WRMSR. Physical addresses are those of the host.
pub(crate) fn write_msr(register: u32, value: u64) {
    point();
    with(|m| m.write_msr(register, value));
}
