//! KVM's preempted byte (Linux, Documentation/virt/kvm/x86/msr.rst and arch/x86/kvm/x86.c: `record_steal_time`,
//! `kvm_steal_time_set_preempted`).

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use shootdown::x86_64::kvm::StealTime;

use super::{Kind, Vcpu};
use crate::machine::Machine;

/// The vCPU is off its CPU.
const PREEMPTED: u8 = 1 << 0;
/// Flush everything before the vCPU's next instruction.
const FLUSH_TLB: u8 = 1 << 1;
/// Bits of the MSR that are not an address of 64 bytes; bit 0 enables.
const NO_ADDRESS: u64 = 0x3f;

impl Machine {
    fn preempted_byte(&self, cpu: usize) -> Option<&'static AtomicU8> {
        let hypervisor = self.hypervisor.as_ref()?;
        let page = hypervisor.steal[cpu].filter(|_| hypervisor.kind == Kind::Kvm)?;
        Some(page.preempted_byte())
    }

    /// The running CPU writes MSR_KVM_STEAL_TIME. An address is that of the host.
    pub(super) fn write_steal_time(&mut self, value: u64) {
        let cpu = self.current;
        let Some(hypervisor) = &mut self.hypervisor else {
            return;
        };
        let is_at = |page: &&StealTime| core::ptr::from_ref(*page) as u64 == value & !NO_ADDRESS;
        let page = hypervisor.steal_pages.iter().find(is_at);
        let enables = value & 1 != 0;
        if (enables && page.is_none()) || value & (NO_ADDRESS & !1) != 0 {
            return self.fail(String::from(
                "steal time is not where the guest has a page for it",
            ));
        }
        hypervisor.steal[cpu] = page.filter(|_| enables);
        // The host updates the structure before the guest's next instruction.
        self.consume_preempted(cpu);
    }

    /// A plain store, as Linux's: it is the host's own byte while the vCPU is not marked.
    pub(super) fn tell_preempted(&mut self, cpu: usize) {
        if let Some(byte) = self.preempted_byte(cpu) {
            self.note_for(cpu, |_| String::from("host: preempted := PREEMPTED"));
            self.write_byte(byte, PREEMPTED);
        }
    }

    /// On entry: one exchange with 0, and a flush of everything if, and only if, it was asked for.
    pub(super) fn consume_preempted(&mut self, cpu: usize) {
        let Some(byte) = self.preempted_byte(cpu) else {
            return;
        };
        let old = byte.load(Relaxed);
        self.write_byte(byte, 0);
        self.note_for(cpu, |_| format!("host: preempted {old} -> 0"));
        if old & FLUSH_TLB != 0 {
            self.tally.flushes_on_entry += 1;
            self.note_for(cpu, |_| String::from("host: flushes everything"));
            self.cpus[cpu].tlb.drop_where(|_| true);
        }
    }

    /// Whether the host will flush everything before `cpu`'s next instruction.
    pub(crate) fn owes_flush(&self, cpu: usize) -> bool {
        self.cpus[cpu].vcpu == Vcpu::Out
            && self
                .preempted_byte(cpu)
                .is_some_and(|byte| byte.load(Relaxed) & FLUSH_TLB != 0)
    }
}
