//! What KVM offers.

use core::fmt;

use raw_cpuid::CpuIdReader;

use crate::x86_64::courier::leaves;

/// What KVM offers, as far as flushes are concerned (Linux, Documentation/virt/kvm/x86/cpuid.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct KvmFeatures {
    /// KVM's signature was found.
    pub present: bool,
    /// Steal time: the structure that has the byte `preempted` (KVM_FEATURE_STEAL_TIME).
    pub steal_time: bool,
    /// A vCPU is flushed on entry if asked for (KVM_FEATURE_PV_TLB_FLUSH).
    pub flush_on_entry: bool,
    /// vCPUs are never preempted for long (KVM_HINTS_REALTIME): then looking at the byte is wasted.
    pub realtime: bool,
}

/// Why vCPUs can't, or need not, be marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum KvmMissing {
    /// The hypervisor is not KVM, or there is none.
    NotKvm,
    /// The host does not offer steal time.
    StealTime,
    /// The host does not flush on entry.
    FlushOnEntry,
    /// The host says that vCPUs always run.
    Realtime,
    /// There is only one CPU.
    OneCpu,
}

impl fmt::Display for KvmMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotKvm => "KVM's interface was not found",
            Self::StealTime => "KVM does not offer steal time",
            Self::FlushOnEntry => "KVM does not flush vCPUs on entry",
            Self::Realtime => "KVM says that vCPUs are not preempted",
            Self::OneCpu => "there is only one CPU",
        })
    }
}

impl core::error::Error for KvmMissing {}

impl KvmFeatures {
    /// Reads CPUID through `cpuid`, which may be a recorded one. KVM is found at any hypervisor leaf, such as behind
    /// Hyper-V's interface.
    pub fn from_cpuid<R: CpuIdReader>(cpuid: &R) -> Self {
        const STEAL_TIME: u32 = 1 << 5;
        const PV_TLB_FLUSH: u32 = 1 << 9;
        const REALTIME: u32 = 1 << 0;
        let Some(base) = leaves::find(cpuid, |base| is_kvm(cpuid, base)) else {
            return Self::default();
        };
        let features = cpuid.cpuid1(base + 1);
        Self {
            present: true,
            steal_time: features.eax & STEAL_TIME != 0,
            flush_on_entry: features.eax & PV_TLB_FLUSH != 0,
            realtime: features.edx & REALTIME != 0,
        }
    }

    /// Whether marking works and pays with `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub const fn check(&self, cpus: usize) -> Result<(), KvmMissing> {
        if !self.present {
            return Err(KvmMissing::NotKvm);
        }
        if !self.steal_time {
            return Err(KvmMissing::StealTime);
        }
        if !self.flush_on_entry {
            return Err(KvmMissing::FlushOnEntry);
        }
        if self.realtime {
            return Err(KvmMissing::Realtime);
        }
        if cpus < 2 {
            return Err(KvmMissing::OneCpu);
        }
        Ok(())
    }
}

/// "KVMKVMKVM", padded with zeros.
fn is_kvm<R: CpuIdReader>(cpuid: &R, base: u32) -> bool {
    let leaf = cpuid.cpuid1(base);
    (leaf.ebx, leaf.ecx, leaf.edx) == (0x4b4d_564b, 0x564b_4d56, 0x4d)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::x86_64::courier::leaves::recorded::{
        BARE_METAL, KVM_BEHIND_HYPER_V, Leaves, PLAIN_KVM,
    };

    #[test]
    fn a_guest_of_kvm() {
        let features = KvmFeatures::from_cpuid(&PLAIN_KVM);
        let expected = KvmFeatures {
            present: true,
            steal_time: true,
            flush_on_entry: true,
            realtime: false,
        };
        assert_eq!(features, expected);
        assert_eq!(features.check(2), Ok(()));
        assert_eq!(features.check(1), Err(KvmMissing::OneCpu));
    }

    #[test]
    fn at_another_leaf_with_the_hint() {
        let features = KvmFeatures::from_cpuid(&KVM_BEHIND_HYPER_V);
        assert!(features.present && features.realtime);
        assert_eq!(features.check(2), Err(KvmMissing::Realtime));
    }

    #[test]
    fn no_hypervisor_or_another_one() {
        let nothing = KvmFeatures::default();
        assert_eq!(KvmFeatures::from_cpuid(&BARE_METAL), nothing);
        // "XenVMMXenVMM"
        let xen = Leaves(&[
            (1, [0, 0, 1 << 31, 0]),
            (
                0x4000_0000,
                [0x4000_0005, 0x566e_6558, 0x6558_4d4d, 0x4d4d_566e],
            ),
            (0x4000_0001, [0x0004_0011, 0, 0, 0]),
        ]);
        assert_eq!(KvmFeatures::from_cpuid(&xen), nothing);
        assert_eq!(nothing.check(2), Err(KvmMissing::NotKvm));
    }
}
