//! Operands of TLBI instructions (Arm ARM, "TLBI VAE1IS" and following).

/// The operand of an invalidation by address: bits 63:48 the ASID, 47:44 the level hint (0: any level), 43:0 the
/// address shifted right by 12, whatever the granule.
///
/// ```
/// assert_eq!(shootdown::aarch64::by_address(0x42, 0x7000_1000), 0x0042_0000_0007_0001);
/// ```
pub const fn by_address(asid: u16, addr: u64) -> u64 {
    (asid as u64) << 48 | (addr >> 12) & ((1 << 44) - 1)
}

/// The operand of an invalidation by ASID: bits 63:48.
pub(super) const fn by_asid(asid: u16) -> u64 {
    (asid as u64) << 48
}

/// The value of TTBR0 for a root and an ASID, with CnP clear: other CPUs' entries are not shared.
pub(super) const fn ttbr(root: u64, asid: u16) -> u64 {
    root | (asid as u64) << 48
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_halves() {
        assert_eq!(by_address(0, 0x1000), 1);
        assert_eq!(by_address(0xffff, 0), 0xffff_0000_0000_0000);
        // The sign extension of a high address must not spill into the level hint or the ASID.
        assert_eq!(by_address(0, 0xffff_8000_0000_1000), 0x0000_0ff8_0000_0001);
        assert_eq!(by_address(1, u64::MAX), 0x0001_0fff_ffff_ffff);
        // Bits 55:12 of the address, for granules of 64 KiB too.
        assert_eq!(by_address(0, 0x00ff_ffff_ffff_0000), 0x0fff_ffff_fff0);
    }

    #[test]
    fn whole_asids_and_roots() {
        assert_eq!(by_asid(0x1234), 0x1234_0000_0000_0000);
        assert_eq!(ttbr(0x4020_0000, 7), 0x0007_0000_4020_0000);
    }
}
