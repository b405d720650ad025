//! What the CPU offers, read from its ID registers.

use super::{Instructions, range::BaseUnit, regime};
use crate::paging::Granule;

/// What matters for the flusher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Features {
    /// Invalidation by range (FEAT_TLBIRANGE, ID_AA64ISAR0_EL1.TLB = 2).
    pub range: bool,
    /// Level hints (FEAT_TTL, ID_AA64MMFR2_EL1.TTL = 1).
    pub level_hint: bool,
    /// 16-bit ASIDs, in the CPU and in TCR.AS.
    pub asid16: bool,
    /// 52-bit addresses with small granules (TCR.DS): base addresses of ranges are in 64 KiB.
    pub lpa2: bool,
    /// A part on which a broadcast invalidation must be repeated to be complete (CVE-2025-10263 and earlier errata).
    pub repeat: bool,
}

/// TCR.DS.
const DS: u64 = 1 << 59;

impl Features {
    /// Reads the ID registers of this CPU, and TCR.
    pub fn detect<I: Instructions>() -> Self {
        Self {
            range: field(I::id_aa64isar0(), 56) >= 2,
            level_hint: field(I::id_aa64mmfr2(), 48) >= 1,
            asid16: regime::asid_limit::<I>() > 256,
            lpa2: I::tcr() & DS != 0,
            repeat: must_repeat(I::midr()),
        }
    }

    /// Whether everything that `used` relies on is here too.
    pub(super) const fn has_all_of(&self, used: &Self) -> bool {
        (self.range || !used.range)
            && (self.level_hint || !used.level_hint)
            && (self.asid16 || !used.asid16)
            && self.lpa2 == used.lpa2
    }

    /// For error messages: one bit a feature.
    pub(super) const fn bits(&self) -> u64 {
        self.range as u64
            | (self.level_hint as u64) << 1
            | (self.asid16 as u64) << 2
            | (self.lpa2 as u64) << 3
    }

    /// How many ASIDs there are, the reserved one included.
    pub const fn asids(&self) -> u64 {
        if self.asid16 { 1 << 16 } else { 1 << 8 }
    }

    /// How base addresses of range operands are given.
    pub(super) const fn base_unit(&self, granule: Granule) -> BaseUnit {
        // With 64 KiB pages both are the same.
        if self.lpa2 && !matches!(granule, Granule::Size64K) {
            BaseUnit::Kib64
        } else {
            BaseUnit::Page
        }
    }
}

const fn field(register: u64, low: u32) -> u64 {
    register >> low & 0xf
}

/// Parts on which the invalidation is not complete for all accesses until it is repeated, by MIDR_EL1: implementer Arm and
/// the part number. All revisions, since fixed ones are not told apart here; repeating costs time only.
const fn must_repeat(midr: u64) -> bool {
    const ARM: u64 = 0x41;
    let part = midr >> 4 & 0xfff;
    midr >> 24 & 0xff == ARM
        && matches!(
            part,
            0xd0b            // Cortex-A76
                | 0xd0c      // Neoverse N1
                | 0xd0d      // Cortex-A77
                | 0xd40      // Neoverse V1
                | 0xd41      // Cortex-A78
                | 0xd42      // Cortex-A78AE
                | 0xd44      // Cortex-X1
                | 0xd47      // Cortex-A710
                | 0xd48      // Cortex-X2
                | 0xd49      // Neoverse N2
                | 0xd4b      // Cortex-A78C
                | 0xd4c      // Cortex-X1C
                | 0xd4e      // Cortex-X3
                | 0xd4f      // Neoverse V2
                | 0xd82      // Cortex-X4
                | 0xd84      // Neoverse V3
                | 0xd85 // Cortex-X925
        )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_that_must_repeat() {
        let midr = |implementer: u64, part: u64| implementer << 24 | 0xf << 16 | part << 4 | 1;
        assert!(must_repeat(midr(0x41, 0xd0c)));
        assert!(!must_repeat(midr(0x41, 0xd08)), "Cortex-A72");
        assert!(!must_repeat(midr(0x51, 0xd0c)), "another implementer");
    }

    #[test]
    fn base_units() {
        let lpa2 = Features {
            lpa2: true,
            ..Features::default()
        };
        assert_eq!(lpa2.base_unit(Granule::Size4K), BaseUnit::Kib64);
        assert_eq!(lpa2.base_unit(Granule::Size64K), BaseUnit::Page);
        assert_eq!(
            Features::default().base_unit(Granule::Size16K),
            BaseUnit::Page
        );
    }
}
