//! [`Instructions`]: the machine instructions the x86_64 backends use, so that they run on hardware, on the simulated
//! machine and under loom alike.

use super::Invlpgb;

/// What INVPCID drops (Intel SDM volume 2, "INVPCID"; AMD APM volume 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum InvpcidKind {
    /// Type 0: one address in one PCID, without globals.
    Address = 0,
    /// Type 1: one PCID, without globals.
    Single = 1,
    /// Type 2: everything, globals included.
    AllWithGlobals = 2,
    /// Type 3: everything but globals.
    AllButGlobals = 3,
}

/// The machine instructions.
///
/// # Safety
///
/// Each function must do what its name says, on the CPU that calls it, and must be neither removed nor moved by the
/// compiler across memory accesses.
pub unsafe trait Instructions: Sized + 'static {
    /// INVLPG: drops the entries for `addr` of the current PCID and all global ones, and the paging-structure caches
    /// of the current PCID.
    ///
    /// # Implementation safety
    ///
    /// Must serialize as INVLPG does.
    fn invlpg(addr: u64);

    /// INVPCID. Called only where CPUID has it. `addr` is canonical, and `pcid` is 0 unless CR4.PCIDE is set.
    ///
    /// # Implementation safety
    ///
    /// Must drop at least what `kind` names.
    fn invpcid(kind: InvpcidKind, pcid: u16, addr: u64);

    /// Reads CR3.
    ///
    /// # Implementation safety
    ///
    /// Must give the register's value.
    fn read_cr3() -> u64;

    /// Writes CR3. Serializes: what was read before is read before the walks of the new tables.
    ///
    /// # Safety
    ///
    /// The root must map the running code and stack; bits 11:0 and 63 must suit CR4.PCIDE.
    unsafe fn write_cr3(value: u64);

    /// Reads CR4.
    ///
    /// # Implementation safety
    ///
    /// Must give the register's value.
    fn read_cr4() -> u64;

    /// Writes CR4.
    ///
    /// # Safety
    ///
    /// The value must be valid for this CPU, and the running code must not depend on a bit that changes.
    unsafe fn write_cr4(value: u64);

    /// Reads the EFER model-specific register.
    ///
    /// # Implementation safety
    ///
    /// Must give the register's value.
    fn read_efer() -> u64;

    /// Makes all earlier stores visible before a following write to the interrupt command register, be it a WRMSR
    /// to the x2APIC, which neither stores nor locked instructions order (Intel SDM volume 3, "MSR Access in x2APIC
    /// Mode"): `mfence; lfence`.
    ///
    /// # Implementation safety
    ///
    /// Must order as said.
    fn publish_before_ipi();

    /// Completes a full memory barrier of which a locked instruction has just been the first half. On x86 that
    /// instruction is the whole barrier, so only the compiler must be held.
    ///
    /// # Implementation safety
    ///
    /// After a read-modify-write with `SeqCst`, earlier stores must be visible before later loads.
    fn barrier_after_rmw();

    /// Makes all earlier stores visible before a following INVLPGB: MFENCE, which AMD counts among the serializing
    /// instructions (APM volume 2, "Serializing Instructions"). INVLPGB is weakly ordered, and no manual says that it
    /// waits for the store buffer.
    ///
    /// # Implementation safety
    ///
    /// Must order as said, and must also be a full barrier.
    fn publish_before_invlpgb();

    /// INVLPGB: broadcasts an invalidation to all CPUs, this one included. Called only where CPUID has it.
    ///
    /// # Implementation safety
    ///
    /// Must drop at least what the registers name, on all CPUs, once a later [`tlbsync`](Self::tlbsync) on this CPU is done.
    fn invlpgb(operands: Invlpgb);

    /// TLBSYNC: waits until all CPUs have done what INVLPGBs of this CPU have asked for. Called only where CPUID has
    /// INVLPGB.
    ///
    /// # Implementation safety
    ///
    /// Must wait as said, also for accesses under way on other CPUs by what was dropped.
    fn tlbsync();
}
