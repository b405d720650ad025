//! The real instructions. The only assembly of the arm64 backends.
//!
//! No `asm!` here is `nomem`: each must stay where it is among memory accesses.

use core::arch::asm;

use aarch64_cpu::{
    asm::barrier,
    registers::{
        CurrentEL, HCR_EL2, ID_AA64ISAR0_EL1, ID_AA64MMFR0_EL1, ID_AA64MMFR2_EL1, MIDR_EL1,
        Readable, TCR_EL1, TTBR1_EL1,
    },
};

use super::{Hardware, Instructions, Tlbi};

macro_rules! tlbi {
    ($operation:literal) => {
        asm!(concat!("tlbi ", $operation), options(nostack, preserves_flags))
    };
    ($operation:literal, $operand:expr) => {
        asm!(concat!("tlbi ", $operation, ", {}"), in(reg) $operand, options(nostack, preserves_flags))
    };
}

/// The assembler knows range operations from Armv8.4 on; they are executed only where the ID register has them.
macro_rules! tlbi_range {
    ($operation:literal, $operand:expr) => {
        asm!(
            ".arch_extension tlb-rmi",
            concat!("tlbi ", $operation, ", {}"),
            ".arch_extension notlb-rmi",
            in(reg) $operand,
            options(nostack, preserves_flags)
        )
    };
}

// SAFETY: each function executes the instruction it is named for, with the operands given.
unsafe impl Instructions for Hardware {
    #[inline(always)]
    fn tlbi(operation: Tlbi, operand: u64) {
        if skipped() {
            return;
        }
        // SAFETY: TLBI changes no memory and no register; dropping more or less is a question of correctness that the
        // caller answers, not of safety here.
        unsafe {
            match operation {
                Tlbi::Vae1Is => tlbi!("vae1is", operand),
                Tlbi::Vale1Is => tlbi!("vale1is", operand),
                Tlbi::Vaae1Is => tlbi!("vaae1is", operand),
                Tlbi::Vaale1Is => tlbi!("vaale1is", operand),
                Tlbi::Rvae1Is => tlbi_range!("rvae1is", operand),
                Tlbi::Rvale1Is => tlbi_range!("rvale1is", operand),
                Tlbi::Rvaae1Is => tlbi_range!("rvaae1is", operand),
                Tlbi::Rvaale1Is => tlbi_range!("rvaale1is", operand),
                Tlbi::Vae1 => tlbi!("vae1", operand),
                Tlbi::Vale1 => tlbi!("vale1", operand),
                Tlbi::Rvae1 => tlbi_range!("rvae1", operand),
                Tlbi::Rvale1 => tlbi_range!("rvale1", operand),
                Tlbi::Aside1 => tlbi!("aside1", operand),
                Tlbi::Aside1Is => tlbi!("aside1is", operand),
                Tlbi::Vmalle1Is => tlbi!("vmalle1is"),
                Tlbi::Vaae1 => tlbi!("vaae1", operand),
                Tlbi::Vmalle1 => tlbi!("vmalle1"),
            }
        }
    }

    #[inline(always)]
    fn dsb_ishst() {
        barrier::dsb(barrier::ISHST);
    }

    #[inline(always)]
    fn dsb_ish() {
        barrier::dsb(barrier::ISH);
    }

    #[inline(always)]
    fn dsb_nsh() {
        barrier::dsb(barrier::NSH);
    }

    #[inline(always)]
    fn isb() {
        barrier::isb(barrier::SY);
    }

    #[inline(always)]
    unsafe fn write_ttbr0(value: u64) {
        // SAFETY: the caller vouches for the tables. Not `nomem`: accesses through the old tables stay before.
        unsafe { asm!("msr ttbr0_el1, {}", in(reg) value, options(nostack, preserves_flags)) };
    }

    fn regime() -> (u8, u64) {
        let level = CurrentEL.read(CurrentEL::EL) as u8;
        // HCR_EL2 is undefined below EL2.
        (level, if level == 2 { HCR_EL2.get() } else { 0 })
    }

    fn id_aa64mmfr0() -> u64 {
        ID_AA64MMFR0_EL1.get()
    }

    fn id_aa64mmfr2() -> u64 {
        ID_AA64MMFR2_EL1.get()
    }

    fn id_aa64isar0() -> u64 {
        ID_AA64ISAR0_EL1.get()
    }

    fn midr() -> u64 {
        MIDR_EL1.get()
    }

    fn read_ttbr1() -> u64 {
        TTBR1_EL1.get()
    }

    unsafe fn write_ttbr1(value: u64) {
        // SAFETY: the caller changes the ASID field only.
        unsafe { asm!("msr ttbr1_el1, {}", in(reg) value, options(nostack, preserves_flags)) };
    }

    fn tcr() -> u64 {
        TCR_EL1.get()
    }
}

/// The counter-proof of the example kernels: invalidations can be skipped, to see that stale entries show.
#[cfg(feature = "_counterproof")]
mod counterproof {
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static SKIP: AtomicBool = AtomicBool::new(false);

    /// From now on this crate executes no TLBI, or does so again.
    pub fn skip_invalidations(skip: bool) {
        SKIP.store(skip, Relaxed);
    }

    #[inline(always)]
    pub(super) fn skipped() -> bool {
        SKIP.load(Relaxed)
    }
}

#[cfg(feature = "_counterproof")]
pub use counterproof::skip_invalidations;
#[cfg(feature = "_counterproof")]
use counterproof::skipped;

#[cfg(not(feature = "_counterproof"))]
#[inline(always)]
const fn skipped() -> bool {
    false
}
