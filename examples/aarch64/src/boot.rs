//! The first translation tables, made at compile time, and what each CPU sets up before it runs Rust code that matters.

use aarch64_cpu::asm::barrier::{self, ISH, ISHST};
use aarch64_cpu::registers::{
    CurrentEL, DAIF, ReadWriteable, Readable, TCR_EL1, TPIDR_EL1, TTBR1_EL1, Writeable,
};
use aarch64_paging::descriptor::El1Attributes as Attributes;
use aarch64_rt::{
    DEFAULT_MAIR, DEFAULT_SCTLR, DEFAULT_TCR_EL1, DEFAULT_TCR_EL2, DEFAULT_TCR_EL3,
    InitialPagetable, initial_pagetable,
};

use crate::paging;

/// TCR_EL1.AS: 16-bit ASIDs, reserved (and ignored) where the CPU has 8 bits only.
const ASID_16: u64 = 1 << 36;

/// 1 GiB of devices and 1 GiB of RAM, global and at their physical addresses. Every root begins with these entries.
pub const IDENTITY: [u64; 2] = {
    let shared = Attributes::VALID.bits() | Attributes::ACCESSED.bits();
    let device = shared
        | Attributes::ATTRIBUTE_INDEX_0.bits()
        | Attributes::PXN.bits()
        | Attributes::UXN.bits();
    let memory = shared | Attributes::ATTRIBUTE_INDEX_1.bits() | Attributes::INNER_SHAREABLE.bits();
    [device as u64, 1 << 30 | memory as u64]
};

const fn reserved_root_entries() -> [usize; 512] {
    let mut entries = [0; 512];
    entries[0] = IDENTITY[0] as usize;
    entries[1] = IDENTITY[1] as usize;
    entries
}

initial_pagetable!(
    InitialPagetable(reserved_root_entries()),
    DEFAULT_MAIR,
    DEFAULT_SCTLR,
    DEFAULT_TCR_EL1 | ASID_16,
    DEFAULT_TCR_EL2,
    DEFAULT_TCR_EL3
);

/// Physical address of the root that holds the kernel's mappings only: what TTBR0 points to while no space is loaded.
#[must_use]
pub fn reserved_root() -> u64 {
    (&raw const INITIAL_PAGETABLE) as u64
}

/// The exception level the caller runs at.
#[must_use]
pub fn exception_level() -> u64 {
    CurrentEL.read(CurrentEL::EL)
}

/// Prepares the calling CPU: its number, the kernel window, interrupts on. The first thing a CPU calls, once.
///
/// # Panics
/// When the pool has no frame left for the kernel window's root.
pub fn init_cpu(id: usize) {
    TPIDR_EL1.set(id as u64);
    TTBR1_EL1.set_baddr(paging::kernel_root());
    // The walker must see the root's entries, and TTBR1, before walks through it are allowed.
    barrier::dsb(ISHST);
    barrier::isb(barrier::SY);
    TCR_EL1.modify(
        TCR_EL1::EPD1::EnableTTBR1Walks
            + TCR_EL1::T1SZ.val(64 - paging::VA_BITS)
            + TCR_EL1::SH1::Inner
            + TCR_EL1::ORGN1::WriteBack_ReadAlloc_WriteAlloc_Cacheable
            + TCR_EL1::IRGN1::WriteBack_ReadAlloc_WriteAlloc_Cacheable,
    );
    barrier::dsb(ISH);
    barrier::isb(barrier::SY);
    DAIF.modify(DAIF::I::Unmasked);
}
