//! The real instructions. The only assembly of the x86_64 backends.
//!
//! No `asm!` here is `nomem`: each flush and each load of a table must stay where it is among memory accesses.

use core::{
    arch::asm,
    sync::atomic::{Ordering::SeqCst, compiler_fence},
};

use x86_64::registers::{
    control::Cr4,
    model_specific::{Efer, Msr},
};

use super::{Hardware, Instructions, Invlpgb, InvpcidKind, Msrs};

// SAFETY: each function executes the instruction it is named for, with the operands given.
unsafe impl Instructions for Hardware {
    #[inline(always)]
    fn invlpg(addr: u64) {
        if skipped() {
            return;
        }
        // SAFETY: INVLPG changes no memory and no register; on a non-canonical address it does nothing.
        unsafe { asm!("invlpg [{}]", in(reg) addr, options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn invpcid(kind: InvpcidKind, pcid: u16, addr: u64) {
        if skipped() {
            return;
        }
        // The PCID in the low quadword, bits 11:0; the address in the high one.
        let descriptor = [u64::from(pcid), addr];
        // SAFETY: the caller gives a canonical address and a PCID that suits CR4.PCIDE; INVPCID changes no memory.
        unsafe {
            asm!(
                "invpcid {kind}, [{descriptor}]",
                kind = in(reg) kind as u64,
                descriptor = in(reg) &raw const descriptor,
                options(nostack, preserves_flags)
            );
        }
    }

    #[inline(always)]
    fn read_cr3() -> u64 {
        let value;
        // SAFETY: reading changes nothing.
        unsafe { asm!("mov {}, cr3", out(reg) value, options(nostack, preserves_flags)) };
        value
    }

    #[inline(always)]
    unsafe fn write_cr3(value: u64) {
        if skipped_reload(value) {
            return;
        }
        // SAFETY: the caller vouches for the root and for bits 11:0 and 63. Not `nomem`: page-table stores stay before.
        unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn read_cr4() -> u64 {
        Cr4::read_raw()
    }

    #[inline(always)]
    unsafe fn write_cr4(value: u64) {
        if skipped() && (value ^ Self::read_cr4()) == super::control::CR4_PGE {
            return;
        }
        // SAFETY: the caller vouches for the value. Not `nomem`: a change of PGE is a flush.
        unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn read_efer() -> u64 {
        Efer::read_raw()
    }

    #[inline(always)]
    fn publish_before_ipi() {
        // SAFETY: fences change nothing.
        unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn barrier_after_rmw() {
        compiler_fence(SeqCst);
    }

    #[inline(always)]
    fn publish_before_invlpgb() {
        // SAFETY: a fence changes nothing.
        unsafe { asm!("mfence", options(nostack, preserves_flags)) };
    }

    // As bytes, for assemblers that don't know the names.
    #[inline(always)]
    fn invlpgb(operands: Invlpgb) {
        if skipped() {
            return;
        }
        // SAFETY: the operands come from the encoders, within what CPUID allows; INVLPGB changes no memory and no
        // register.
        unsafe {
            asm!(
                ".byte 0x0f, 0x01, 0xfe",
                in("rax") operands.rax(),
                in("ecx") operands.ecx(),
                in("edx") operands.edx(),
                options(nostack, preserves_flags)
            );
        }
    }

    #[inline(always)]
    fn tlbsync() {
        // SAFETY: it only waits. Not `nomem`: whoever reuses a frame does so afterwards.
        unsafe { asm!(".byte 0x0f, 0x01, 0xff", options(nostack, preserves_flags)) };
    }
}

// SAFETY: each function executes the instruction it is named for.
unsafe impl Msrs for Hardware {
    unsafe fn read(register: u32) -> u64 {
        // SAFETY: promised by the caller.
        unsafe { Msr::new(register).read() }
    }

    unsafe fn write(register: u32, value: u64) {
        // SAFETY: promised by the caller.
        unsafe { Msr::new(register).write(value) }
    }
}

/// Makes a hypercall through Hyper-V's page at the virtual address `page`, without output.
///
/// It takes the control word in RCX and the addresses of input and output in RDX and R8, gives the result in RAX, and may
/// change the volatile registers of the calling convention, vector registers only for calls that have operands there
/// (TLFS, "Hypercall Inputs" and "Register Volatility").
///
/// # Safety
///
/// The hypervisor's code must be at `page`; the operands must be those of a call that has none in vector registers.
pub(super) unsafe fn call_hypercall_page(page: u64, control: u64, input: u64) -> u64 {
    let result;
    // SAFETY: promised by the caller. The page's code uses no stack but for its return address.
    unsafe {
        asm!(
            "call {page}",
            page = in(reg) page,
            inlateout("rcx") control => _,
            inlateout("rdx") input => _,
            inlateout("r8") 0_u64 => _,
            lateout("r9") _,
            lateout("r10") _,
            lateout("r11") _,
            lateout("rax") result,
        );
    }
    result
}

/// The counter-proof of the example kernels: invalidations can be skipped, to see that stale entries show.
#[cfg(feature = "_counterproof")]
mod counterproof {
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static SKIP: AtomicBool = AtomicBool::new(false);

    /// From now on this crate executes no invalidation, or does so again. Loading another root still invalidates.
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

/// Whether a CR3 write would do nothing but flush, and is to be skipped.
#[inline(always)]
fn skipped_reload(value: u64) -> bool {
    skipped() && (value ^ Hardware::read_cr3()) & super::config::ROOT_MASK == 0
}
