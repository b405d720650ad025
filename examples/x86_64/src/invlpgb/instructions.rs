//! The instructions as the flusher executes them: the CPU's own, but for PCIDs where INVLPGB is emulated.

use core::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use shootdown::x86_64::{Hardware, Instructions, Invlpgb, InvlpgbFlags, InvpcidKind};

use super::cpuid::is_emulated;
use crate::{MAX_CPUS, percpu};

const NO_FLUSH: u64 = 1 << 63;
const PCID: u64 = 0xfff;
const CR4_PCIDE: u64 = 1 << 17;

/// Of each CPU, where PCIDs are emulated: CR4.PCIDE, and the PCID in CR3. Written by that CPU; its NMI handler reads.
static REGISTERS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

fn registers() -> &'static AtomicU64 {
    &REGISTERS[percpu::current()]
}

/// The PCID that the flusher believes to be loaded.
pub(super) fn pcid() -> u16 {
    (registers().load(Relaxed) & PCID) as u16
}

/// Whether the flusher believes that PCIDs are enabled.
pub(super) fn pcide() -> bool {
    registers().load(Relaxed) & CR4_PCIDE != 0
}

/// A counter-proof: the instruction that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LeaveOut {
    /// None.
    Nothing,
    /// INVLPGB.
    Invlpgb,
    /// TLBSYNC.
    Tlbsync,
}

static LEAVE_OUT: AtomicU8 = AtomicU8::new(LeaveOut::Nothing as u8);

/// From now on the instruction is not executed.
pub fn leave_out(instruction: LeaveOut) {
    LEAVE_OUT.store(instruction as u8, SeqCst);
}

fn is_left_out(instruction: LeaveOut) -> bool {
    LEAVE_OUT.load(Relaxed) == instruction as u8
}

static INVLPGBS: AtomicU64 = AtomicU64::new(0);
static RESETS: AtomicU64 = AtomicU64::new(0);
static TLBSYNCS: AtomicU64 = AtomicU64::new(0);

/// What the flusher asked for since boot, on all CPUs, left out or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// INVLPGBs.
    pub invlpgbs: u64,
    /// Those of them that were for all entries of all PCIDs that are not global: PCIDs come free by these.
    pub resets: u64,
    /// TLBSYNCs.
    pub tlbsyncs: u64,
}

/// See [`Executed`].
#[must_use]
pub fn executed() -> Executed {
    Executed {
        invlpgbs: INVLPGBS.load(Relaxed),
        resets: RESETS.load(Relaxed),
        tlbsyncs: TLBSYNCS.load(Relaxed),
    }
}

/// The CPU as the flusher sees it. Where INVLPGB is not emulated, everything is the CPU's own.
#[derive(Debug)]
pub struct BroadcastCpu;

// SAFETY: all is done by `Hardware`. Where PCIDs are emulated, CR3 is loaded without PCID and NOFLUSH: the CPU then has
// no entries but those of the loaded root, and drops more than it was asked to; a load that changes nothing and keeps
// entries is none. INVLPGB and TLBSYNC are left out for a counter-proof only.
unsafe impl Instructions for BroadcastCpu {
    #[inline]
    fn invlpg(addr: u64) {
        Hardware::invlpg(addr);
    }

    fn invpcid(kind: InvpcidKind, pcid: u16, addr: u64) {
        assert!(!is_emulated(), "INVPCID is not claimed");
        Hardware::invpcid(kind, pcid, addr);
    }

    fn read_cr3() -> u64 {
        let cr3 = Hardware::read_cr3();
        if is_emulated() {
            cr3 | u64::from(pcid())
        } else {
            cr3
        }
    }

    unsafe fn write_cr3(value: u64) {
        if !is_emulated() {
            // SAFETY: the caller's promise is the same.
            unsafe { Hardware::write_cr3(value) };
            return;
        }
        let before = Self::read_cr3();
        let registers = registers();
        let pcide = registers.load(Relaxed) & CR4_PCIDE;
        assert!(
            pcide != 0 || value & (NO_FLUSH | PCID) == 0,
            "a load of CR3 with {value:#x} raises #GP: CR4.PCIDE is 0"
        );
        if value == before | NO_FLUSH {
            // Neither root nor PCID changes, and nothing is to be dropped.
            return;
        }
        // The PCID first: an NMI in between drops nothing of the old one, which the load is about to do.
        registers.store(pcide | value & PCID, Relaxed);
        // SAFETY: the root is the caller's; the other bits are 0.
        unsafe { Hardware::write_cr3(value & !(NO_FLUSH | PCID)) };
    }

    fn read_cr4() -> u64 {
        let cr4 = Hardware::read_cr4();
        if is_emulated() {
            cr4 | registers().load(Relaxed) & CR4_PCIDE
        } else {
            cr4
        }
    }

    unsafe fn write_cr4(value: u64) {
        if !is_emulated() {
            // SAFETY: the caller's promise is the same.
            unsafe { Hardware::write_cr4(value) };
            return;
        }
        let registers = registers();
        let before = registers.load(Relaxed);
        assert!(
            value & CR4_PCIDE == 0 || before & CR4_PCIDE != 0 || before & PCID == 0,
            "a load of CR4 with {value:#x} raises #GP: CR3 bits 11:0 are not 0"
        );
        registers.store(value & CR4_PCIDE | before & PCID, Relaxed);
        // SAFETY: as promised by the caller, without a bit that the CPU may not have.
        unsafe { Hardware::write_cr4(value & !CR4_PCIDE) };
    }

    fn read_efer() -> u64 {
        Hardware::read_efer()
    }

    #[inline]
    fn publish_before_ipi() {
        Hardware::publish_before_ipi();
    }

    #[inline]
    fn barrier_after_rmw() {
        Hardware::barrier_after_rmw();
    }

    #[inline]
    fn publish_before_invlpgb() {
        Hardware::publish_before_invlpgb();
    }

    fn invlpgb(operands: Invlpgb) {
        INVLPGBS.fetch_add(1, Relaxed);
        let flags = InvlpgbFlags::from_bits_truncate(operands.rax());
        if flags == InvlpgbFlags::ASID {
            RESETS.fetch_add(1, Relaxed);
        }
        if !is_left_out(LeaveOut::Invlpgb) {
            Hardware::invlpgb(operands);
        }
    }

    fn tlbsync() {
        TLBSYNCS.fetch_add(1, Relaxed);
        if !is_left_out(LeaveOut::Tlbsync) {
            Hardware::tlbsync();
        }
    }
}
