//! Which translation regime this CPU runs in, and what of it all CPUs must share.

use super::Instructions;
use crate::paging::Granule;

const E2H: u64 = 1 << 34;
const TGE: u64 = 1 << 27;
/// TCR.A1: the ASID is taken from TTBR1.
const A1: u64 = 1 << 22;
/// TCR.AS: ASIDs have 16 bits.
const AS: u64 = 1 << 36;
/// TCR: T0SZ, TG0, T1SZ, A1, TG1, AS.
const COMPARED: u64 = 0x3f | 0x3 << 14 | 0x3f << 16 | A1 | 0x3 << 30 | AS;

/// The exception level, if the backend can't serve it. At EL2 without E2H and TGE there are no ASIDs and other TLBIs
/// apply.
pub(super) fn unserved_level<I: Instructions>() -> Option<u8> {
    let (level, hcr) = I::regime();
    let served = level == 1 || (level == 2 && hcr & (E2H | TGE) == E2H | TGE);
    (!served).then_some(level)
}

/// Whether TCR has this granule, for TTBR0 and, where that is enabled, for TTBR1.
pub(super) fn has_granule<I: Instructions>(granule: Granule) -> bool {
    /// TCR.EPD1: TTBR1 is not walked.
    const EPD1: u64 = 1 << 23;
    let (tg0, tg1) = match granule {
        Granule::Size4K => (0b00, 0b10),
        Granule::Size16K => (0b10, 0b01),
        Granule::Size64K => (0b01, 0b11),
    };
    let tcr = I::tcr();
    tcr >> 14 & 3 == tg0 && (tcr & EPD1 != 0 || tcr >> 30 & 3 == tg1)
}

/// The translation features that all CPUs must share.
pub(super) fn features<I: Instructions>() -> u64 {
    I::tcr() & COMPARED
}

/// Whether the ASID is taken from TTBR1, which the backend does not write.
pub(super) fn asid_in_ttbr1<I: Instructions>() -> bool {
    I::tcr() & A1 != 0
}

/// How many ASIDs there are: 256, or 65536 where both the CPU has them (ID_AA64MMFR0_EL1.ASIDBits) and TCR.AS is set.
pub(super) fn asid_limit<I: Instructions>() -> u64 {
    let bits16 = I::id_aa64mmfr0() >> 4 & 0xf == 0b0010;
    if bits16 && I::tcr() & AS != 0 {
        1 << 16
    } else {
        1 << 8
    }
}
