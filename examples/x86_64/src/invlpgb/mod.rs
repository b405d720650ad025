//! INVLPGB and TLBSYNC: the CPU's own, or emulated where it lacks them.
//!
//! Either way the flusher is the same, and executes the bytes of the real instructions. What is emulated:
//!
//! * **CPUID** claims PCIDs and INVLPGB ([`features`]).
//! * **INVLPGB and TLBSYNC** raise #UD. The handler decodes the instruction, and at the latest when the CPU that issued
//!   the requests executes TLBSYNC, an NMI has all CPUs, also those with interrupts off, drop what the operands name. Until
//!   then nobody drops anything, the issuer included.
//! * **PCIDs** are numbers that [`BroadcastCpu`] keeps: CR3 gets the root alone, so a load of another root or PCID drops
//!   everything, even where the flusher asks to keep it. That a PCID holds stale entries while it is not loaded is
//!   therefore never seen here; the simulated machine shows it.
//!
//! A load of CR3 drops global entries too on QEMU, and takes the place of INVLPGBs that name all entries of a PCID.

mod cpuid;
mod emulation;
mod instructions;

pub use cpuid::{features, is_emulated, start};
pub(crate) use emulation::{emulate, join, serve_nmi};
pub use instructions::{BroadcastCpu, Executed, LeaveOut, executed, leave_out};
