//! What the CPU offers, read through CPUID.

use raw_cpuid::{CpuId, CpuIdReader};

/// Whether INVLPG drops global entries while PCIDs are enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum GlobalInvlpg {
    /// It does, as the manual says.
    #[default]
    Works,
    /// It does not (Intel erratum of Alder Lake, Raptor Lake and Gracemont; Linux commit ce0b15d11ad8). Then PCIDs are
    /// refused.
    Misses,
}

/// What matters for the flusher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Features {
    /// Process-context identifiers (CPUID.1:ECX.17).
    pub pcid: bool,
    /// INVPCID (CPUID.7.0:EBX.10).
    pub invpcid: bool,
    /// Five-level paging is enabled (CR4.LA57), not merely offered.
    pub la57_enabled: bool,
    /// Whether PCIDs are safe.
    pub global_invlpg: GlobalInvlpg,
    /// INVLPGB and TLBSYNC (CPUID.8000_0008:EBX.3, AMD), with the largest count of extra pages that one INVLPGB takes
    /// (EDX.15:0).
    pub invlpgb: Option<u16>,
}

impl Features {
    /// Reads CPUID through `cpuid`, which may be a recorded one. `la57_enabled` is not in CPUID: it stays false.
    ///
    /// A hypervisor may offer INVPCID without PCIDs; that is kept, since type 2 works there too.
    pub fn from_cpuid<R: CpuIdReader>(cpuid: &CpuId<R>) -> Self {
        let info = cpuid.get_feature_info();
        let intel = cpuid
            .get_vendor_info()
            .is_some_and(|vendor| vendor.as_str() == "GenuineIntel");
        let capacity = cpuid.get_processor_capacity_feature_info();
        let misses = intel
            && info.as_ref().is_some_and(|info| {
                // Family 6: Alder Lake, Alder Lake L, Raptor Lake, Raptor Lake P, Gracemont, Raptor Lake S.
                let model = model(info.base_model_id(), info.extended_model_id());
                info.base_family_id() == 6
                    && matches!(model, 0x97 | 0x9a | 0xb7 | 0xba | 0xbe | 0xbf)
            });
        Self {
            pcid: info.is_some_and(|info| info.has_pcid()),
            invpcid: cpuid
                .get_extended_feature_info()
                .is_some_and(|info| info.has_invpcid()),
            la57_enabled: false,
            global_invlpg: if misses {
                GlobalInvlpg::Misses
            } else {
                GlobalInvlpg::Works
            },
            invlpgb: capacity
                .filter(|capacity| capacity.has_invlpgb())
                .map(|capacity| capacity.invlpgb_max_pages()),
        }
    }
}

const fn model(base: u8, extended: u8) -> u8 {
    extended << 4 | base
}

/// What this CPU offers.
#[cfg(target_arch = "x86_64")]
pub fn detect() -> Features {
    use super::{Hardware, Instructions, control};
    let cpuid = CpuId::new();
    let mut features = Features::from_cpuid(&cpuid);
    // CR4 can be read in the kernel only. Where CPUID does not offer five levels it needs no look, so that detection
    // also works in a process, for tools.
    if cpuid
        .get_extended_feature_info()
        .is_some_and(|info| info.has_la57())
        && cfg!(target_os = "none")
    {
        features.la57_enabled = Hardware::read_cr4() & control::CR4_LA57 != 0;
    }
    features
}

#[cfg(all(test, not(loom)))]
mod tests {
    use raw_cpuid::CpuIdResult;

    use super::*;

    const ZERO: CpuIdResult = CpuIdResult {
        eax: 0,
        ebx: 0,
        ecx: 0,
        edx: 0,
    };

    fn cpu(signature: u32, pcid: bool) -> impl CpuIdReader {
        move |leaf: u32, _sub: u32| -> CpuIdResult {
            match leaf {
                // "GenuineIntel"
                0 => CpuIdResult {
                    eax: 7,
                    ebx: 0x756e_6547,
                    edx: 0x4965_6e69,
                    ecx: 0x6c65_746e,
                },
                1 => CpuIdResult {
                    eax: signature,
                    ecx: u32::from(pcid) << 17,
                    ..ZERO
                },
                7 => CpuIdResult {
                    ebx: 1 << 10,
                    ..ZERO
                },
                _ => ZERO,
            }
        }
    }

    /// An AMD CPU with the given EBX and EDX in leaf 8000_0008.
    fn amd(ebx: u32, edx: u32) -> Features {
        Features::from_cpuid(&CpuId::with_cpuid_reader(
            move |leaf: u32, _sub: u32| match leaf {
                // "AuthenticAMD"
                0 | 0x8000_0000 => CpuIdResult {
                    eax: leaf + 0x1f,
                    ebx: 0x6874_7541,
                    edx: 0x6974_6e65,
                    ecx: 0x444d_4163,
                },
                0x8000_0008 => CpuIdResult { ebx, edx, ..ZERO },
                _ => ZERO,
            },
        ))
    }

    #[test]
    fn invlpgb_and_how_many_pages_it_takes() {
        // Milan: 8 pages, that is 7 extra ones; bits of EDX above 15 mean something else.
        assert_eq!(amd(1 << 3, 0x0001_0007).invlpgb, Some(7));
        assert_eq!(amd(1 << 3, 0xffff).invlpgb, Some(0xffff));
        assert_eq!(amd(1 << 3, 0).invlpgb, Some(0));
        // INVLPGB of nested translations alone says nothing.
        assert_eq!(amd(1 << 21, 7).invlpgb, None);
    }

    #[test]
    fn skylake_has_safe_pcids() {
        let features = Features::from_cpuid(&CpuId::with_cpuid_reader(cpu(0x0005_06e3, true)));
        assert!(features.pcid && features.invpcid);
        assert_eq!(features.global_invlpg, GlobalInvlpg::Works);
    }

    #[test]
    fn alder_lake_is_refused() {
        let features = Features::from_cpuid(&CpuId::with_cpuid_reader(cpu(0x0009_06a3, true)));
        assert_eq!(features.global_invlpg, GlobalInvlpg::Misses);
    }

    #[test]
    fn a_cpu_without_pcids() {
        let features = Features::from_cpuid(&CpuId::with_cpuid_reader(cpu(0x0005_06e3, false)));
        assert!(!features.pcid);
    }
}
