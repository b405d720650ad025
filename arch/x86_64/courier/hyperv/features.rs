//! What Hyper-V, or who speaks its language, offers.

use core::fmt;

use raw_cpuid::CpuIdReader;

use crate::x86_64::courier::leaves;

/// What the hypervisor offers and advises, as far as flushes are concerned (TLFS, "Hypervisor CPUID Leaves").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HyperVFeatures {
    /// The interface `Hv#1` was found.
    pub present: bool,
    /// The guest may set up hypercalls (AccessHypercallMsrs).
    pub hypercalls: bool,
    /// The guest may read VP indices (AccessVpIndex).
    pub vp_index: bool,
    /// Hypercalls are advised for flushing other processors (UseHypercallForRemoteFlush).
    pub remote_flush: bool,
    /// Calls that take a set of processors are advised (UseExProcessorMasks): for processors above 63.
    pub processor_sets: bool,
}

/// Why flushes can't, or should not, be hypercalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum HyperVMissing {
    /// The interface was not found.
    NotHyperV,
    /// The guest may not make hypercalls.
    Hypercalls,
    /// The guest may not read VP indices.
    VpIndex,
    /// The host does not advise hypercalls for flushes: interrupts are quicker there.
    NotAdvised,
    /// There is only one CPU.
    OneCpu,
}

impl fmt::Display for HyperVMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotHyperV => "Hyper-V's interface was not found",
            Self::Hypercalls => "the guest may not make hypercalls",
            Self::VpIndex => "the guest may not read VP indices",
            Self::NotAdvised => "the host does not advise hypercalls for flushes",
            Self::OneCpu => "there is only one CPU",
        })
    }
}

impl core::error::Error for HyperVMissing {}

/// "Hv#1" in EAX.
const INTERFACE: u32 = 0x3123_7648;

impl HyperVFeatures {
    /// Reads CPUID through `cpuid`, which may be a recorded one. The interface is found at any hypervisor leaf, and
    /// whoever the vendor is.
    pub fn from_cpuid<R: CpuIdReader>(cpuid: &R) -> Self {
        let Some(base) = leaves::find(cpuid, |base| is_hyper_v(cpuid, base)) else {
            return Self::default();
        };
        let privileges = cpuid.cpuid1(base + 3).eax;
        let advice = cpuid.cpuid1(base + 4).eax;
        Self {
            present: true,
            hypercalls: privileges & 1 << 5 != 0,
            vp_index: privileges & 1 << 6 != 0,
            remote_flush: advice & 1 << 2 != 0,
            processor_sets: advice & 1 << 11 != 0,
        }
    }

    /// Whether hypercalls can be made for flushes, and should with `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub const fn check(&self, cpus: usize) -> Result<(), HyperVMissing> {
        if !self.present {
            return Err(HyperVMissing::NotHyperV);
        }
        if !self.hypercalls {
            return Err(HyperVMissing::Hypercalls);
        }
        if !self.vp_index {
            return Err(HyperVMissing::VpIndex);
        }
        if !self.remote_flush {
            return Err(HyperVMissing::NotAdvised);
        }
        if cpus < 2 {
            return Err(HyperVMissing::OneCpu);
        }
        Ok(())
    }
}

/// The interface's signature, and that its leaves reach as far as they are read.
fn is_hyper_v<R: CpuIdReader>(cpuid: &R, base: u32) -> bool {
    cpuid.cpuid1(base).eax >= base + 4 && cpuid.cpuid1(base + 1).eax == INTERFACE
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::x86_64::courier::leaves::recorded::{
        BARE_METAL, KVM_BEHIND_HYPER_V, Leaves, PLAIN_KVM,
    };

    #[test]
    fn offered_by_kvm() {
        let features = HyperVFeatures::from_cpuid(&KVM_BEHIND_HYPER_V);
        let expected = HyperVFeatures {
            present: true,
            hypercalls: true,
            vp_index: true,
            remote_flush: true,
            processor_sets: true,
        };
        assert_eq!(features, expected);
        assert_eq!(features.check(2), Ok(()));
    }

    #[test]
    fn at_another_leaf_of_another_vendor_and_not_advised() {
        let other = Leaves(&[
            (1, [0, 0, 1 << 31, 0]),
            (0x4000_0000, [0x4000_0005, 1, 2, 3]),
            (0x4000_0200, [0x4000_0205, 4, 5, 6]),
            (0x4000_0201, [0x3123_7648, 0, 0, 0]),
            (0x4000_0203, [1 << 5 | 1 << 6, 0, 0, 0]),
            (0x4000_0204, [!(1 << 2), 0, 0, 0]),
        ]);
        let features = HyperVFeatures::from_cpuid(&other);
        assert!(features.hypercalls && features.vp_index && features.processor_sets);
        assert_eq!(features.check(2), Err(HyperVMissing::NotAdvised));
    }

    #[test]
    fn not_offered() {
        let nothing = HyperVFeatures::default();
        assert_eq!(HyperVFeatures::from_cpuid(&BARE_METAL), nothing);
        assert_eq!(HyperVFeatures::from_cpuid(&PLAIN_KVM), nothing);
        // Leaves that do not reach the advice.
        let short = Leaves(&[
            (1, [0, 0, 1 << 31, 0]),
            (0x4000_0000, [0x4000_0003, 1, 2, 3]),
            (0x4000_0001, [0x3123_7648, 0, 0, 0]),
        ]);
        assert_eq!(HyperVFeatures::from_cpuid(&short), nothing);
    }
}
