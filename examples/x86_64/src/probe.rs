//! Memory accesses that report a page fault instead of dying of it.
//!
//! The page-fault handler knows the two instructions below by their address, so there is no state that an
//! interrupt or an NMI in between could disturb.

use core::fmt;

use crate::traps::TrapFrame;

/// A page fault taken by a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The address that faulted.
    pub address: u64,
    /// The CPU's error code: bit 0 the page was present, bit 1 a write, bit 3 a reserved bit was set.
    pub error: u64,
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Fault {{ address: {:#x}, error: {:#x} }}",
            self.address, self.error
        )
    }
}

#[repr(C)]
struct Outcome {
    fault: u64,
    value: u64,
}

const FAULTED: u64 = 1 << 63;

unsafe extern "C" {
    fn probe_load(va: u64) -> Outcome;
    fn probe_store(va: u64, value: u64) -> Outcome;
    static probe_load_access: u8;
    static probe_store_access: u8;
    static probe_resume: u8;
}

/// Reads the word at `va` through the TLB of this CPU.
///
/// # Errors
/// [`Fault`] when the access raised a page fault.
///
/// # Safety
/// Whatever is mapped at `va`, also by a stale translation, may be read: no device, and no memory that Rust code
/// writes at the same time without atomics.
pub unsafe fn read(va: u64) -> Result<u64, Fault> {
    // SAFETY: the caller answers for the access; the function touches no other memory.
    let outcome = unsafe { probe_load(va) };
    if outcome.fault & FAULTED == 0 {
        Ok(outcome.value)
    } else {
        Err(fault(&outcome))
    }
}

/// Writes the word at `va` through the TLB of this CPU.
///
/// # Errors
/// [`Fault`] when the access raised a page fault.
///
/// # Safety
/// Whatever is mapped at `va`, also by a stale translation, may be overwritten.
pub unsafe fn write(va: u64, value: u64) -> Result<(), Fault> {
    // SAFETY: the caller answers for the access; the function touches no other memory.
    let outcome = unsafe { probe_store(va, value) };
    if outcome.fault & FAULTED == 0 {
        Ok(())
    } else {
        Err(fault(&outcome))
    }
}

fn fault(outcome: &Outcome) -> Fault {
    Fault {
        address: outcome.value,
        error: outcome.fault & !FAULTED,
    }
}

/// Whether the page fault was a probe's, which then resumes with an error.
pub(crate) fn recover(frame: &mut TrapFrame, address: u64) -> bool {
    let accesses = [&raw const probe_load_access, &raw const probe_store_access];
    if !accesses
        .iter()
        .any(|access| access.addr() as u64 == frame.rip)
    {
        return false;
    }
    frame.rax = FAULTED | frame.error;
    frame.rdx = address;
    frame.rip = (&raw const probe_resume).addr() as u64;
    true
}
