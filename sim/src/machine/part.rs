//! Which arm64 CPU is simulated: its optional features, as its ID registers and TCR tell them.

use std::cell::Cell;

/// An arm64 CPU's optional features, and how the kernel has set it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// FEAT_TLBIRANGE.
    pub range: bool,
    /// FEAT_TTL.
    pub level_hint: bool,
    /// TCR.DS: ranges have base addresses in 64 KiB.
    pub lpa2: bool,
    /// A broadcast TLBI is complete only once another one has followed (CVE-2025-10263).
    pub repeat: bool,
    /// TCR.A1: the ASID is taken from TTBR1.
    pub asid_in_ttbr1: bool,
    /// TTBR1.CnP: the kernel has it set on CPUs that come up.
    pub common: bool,
}

thread_local! {
    static PART: Cell<Part> = const { Cell::new(Part {
        range: false,
        level_hint: false,
        lpa2: false,
        repeat: false,
        asid_in_ttbr1: false,
        common: false,
    }) };
}

/// Makes all CPUs of this thread's machine such.
pub(crate) fn set_part(part: Part) {
    PART.set(part);
}

/// What this thread's CPUs are.
pub(crate) fn part() -> Part {
    PART.get()
}

impl Part {
    pub(crate) const fn id_aa64isar0(self) -> u64 {
        if self.range { 2 << 56 } else { 1 << 56 }
    }

    pub(crate) const fn id_aa64mmfr2(self) -> u64 {
        if self.level_hint { 1 << 48 } else { 0 }
    }

    /// Neoverse N1, which must repeat, or Cortex-A72.
    pub(crate) const fn midr(self) -> u64 {
        let part = if self.repeat { 0xd0c } else { 0xd08 };
        0x41 << 24 | 0xf << 16 | part << 4
    }

    /// 48-bit halves of 4 KiB granules, 8-bit ASIDs: T0SZ = T1SZ = 16, TG1 = 0b10, and A1 and DS.
    pub(crate) const fn tcr(self) -> u64 {
        let a1 = if self.asid_in_ttbr1 { 1 << 22 } else { 0 };
        let ds = if self.lpa2 { 1 << 59 } else { 0 };
        16 | 16 << 16 | 0b10 << 30 | a1 | ds
    }
}
