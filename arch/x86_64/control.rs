//! CR3 and CR4: the bits the flusher needs, how a CR3 value is put together, and enabling PCIDs.

use super::{Instructions, config::ROOT_MASK};

/// CR4.PGE: global pages.
pub(super) const CR4_PGE: u64 = 1 << 7;
/// CR4.LA57: five-level paging.
pub(super) const CR4_LA57: u64 = 1 << 12;
/// CR4.PCIDE: process-context identifiers.
pub(super) const CR4_PCIDE: u64 = 1 << 17;
/// CR4.PKE: protection keys for user pages.
const CR4_PKE: u64 = 1 << 22;
/// EFER.NXE: the no-execute bit.
const EFER_NXE: u64 = 1 << 11;
/// EFER.TCE: INVLPG keeps upper-level entries that do not lead to its address (AMD).
const EFER_TCE: u64 = 1 << 15;

/// CR3 bit 63: keep the entries of the PCID that is loaded.
const NO_FLUSH: u64 = 1 << 63;

/// The bits that decide how translations are cached; all CPUs must have the same. CR4 is in the low half.
pub(super) fn features<I: Instructions>() -> u64 {
    let cr4 = I::read_cr4() & (CR4_PGE | CR4_LA57 | CR4_PCIDE | CR4_PKE);
    cr4 | (I::read_efer() & (EFER_NXE | EFER_TCE)) << 32
}

/// Whether EFER.TCE is among `features`.
pub(super) const fn keeps_unrelated_tables(features: u64) -> bool {
    features & EFER_TCE << 32 != 0
}

/// A CR3 value that drops what the PCID has (Intel SDM volume 3, "Operations that Invalidate TLBs and
/// Paging-Structure Caches").
pub(super) const fn cr3(root: u64, pcid: u16) -> u64 {
    root | pcid as u64
}

/// A CR3 value that keeps what the PCID has. Only with CR4.PCIDE: without it bit 63 is reserved.
pub(super) const fn cr3_no_flush(root: u64, pcid: u16) -> u64 {
    cr3(root, pcid) | NO_FLUSH
}

/// Sets CR4.PCIDE on this CPU. CR3 gets PCID 0 first: PCIDE can be set only while CR3 bits 11:0 are 0 (Intel SDM
/// volume 3, "Process-Context Identifiers"). Interrupts are off.
pub(super) fn enable_pcid<I: Instructions>() {
    let cr4 = I::read_cr4();
    if cr4 & CR4_PCIDE != 0 {
        return;
    }
    let root = I::read_cr3() & ROOT_MASK;
    // SAFETY: the root stays the same; bits 11:0 become 0, which means PCID 0 and the default memory type for the
    // root table. PCIDE is set only where `Config` found PCIDs to be there, in long mode.
    unsafe {
        I::write_cr3(root);
        I::write_cr4(cr4 | CR4_PCIDE);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn cr3_values() {
        assert_eq!(cr3(0x1234_5000, 0), 0x1234_5000);
        assert_eq!(cr3(0x1234_5000, 6), 0x1234_5006);
        assert_eq!(cr3_no_flush(0x1234_5000, 6), 0x8000_0000_1234_5006);
    }
}
