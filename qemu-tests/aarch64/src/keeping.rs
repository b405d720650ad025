//! A TLB that keeps the entries of other ASIDs on a switch, as hardware does.
//!
//! QEMU drops everything when the ASID in TTBR0 changes. So that a test sees what a CPU keeps of a space that it does not
//! run, the reserved root is loaded with that space's ASID here. That suits a test with one space.

use aarch64_cpu::registers::{Readable, TTBR0_EL1};
use shootdown::aarch64::{Hardware, Instructions, Tlbi};

const ASID_FIELD: u64 = 0xffff << 48;

/// The instructions of [`Hardware`], but for writes to TTBR0 with ASID 0.
#[derive(Debug)]
pub struct Keeping;

// SAFETY: all of them are the hardware's own; TTBR0 gets the root that it should, with the ASID that it has.
unsafe impl Instructions for Keeping {
    fn tlbi(operation: Tlbi, operand: u64) {
        Hardware::tlbi(operation, operand);
    }

    fn dsb_ishst() {
        Hardware::dsb_ishst();
    }

    fn dsb_ish() {
        Hardware::dsb_ish();
    }

    fn dsb_nsh() {
        Hardware::dsb_nsh();
    }

    fn isb() {
        Hardware::isb();
    }

    unsafe fn write_ttbr0(value: u64) {
        let asid = match value & ASID_FIELD {
            0 => TTBR0_EL1.get() & ASID_FIELD,
            asid => asid,
        };
        // SAFETY: promised by the caller.
        unsafe { Hardware::write_ttbr0(value & !ASID_FIELD | asid) };
    }

    fn regime() -> (u8, u64) {
        Hardware::regime()
    }

    fn id_aa64mmfr0() -> u64 {
        Hardware::id_aa64mmfr0()
    }

    fn id_aa64mmfr2() -> u64 {
        Hardware::id_aa64mmfr2()
    }

    fn id_aa64isar0() -> u64 {
        Hardware::id_aa64isar0()
    }

    fn midr() -> u64 {
        Hardware::midr()
    }

    fn read_ttbr1() -> u64 {
        Hardware::read_ttbr1()
    }

    unsafe fn write_ttbr1(value: u64) {
        // SAFETY: promised by the caller.
        unsafe { Hardware::write_ttbr1(value) };
    }

    fn tcr() -> u64 {
        Hardware::tcr()
    }
}
