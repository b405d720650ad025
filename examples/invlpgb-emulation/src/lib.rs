//! What INVLPGB and TLBSYNC do, for kernels on a CPU that lacks them: the invalid-opcode handler decodes the
//! instruction, and every CPU drops exactly what the operands name, at the latest when the CPU that issued it syncs.
//!
//! Nothing here knows the crate under test: the operands are read as the hardware reads them (AMD64 Architecture
//! Programmer's Manual volume 3, "INVLPGB" and "TLBSYNC"), and refused where it raises #GP. Where the manual leaves a
//! choice, less is dropped.
//!
//! Nothing here touches a machine either: a kernel supplies the trap, a [`Tlb`] and a way to interrupt other CPUs. So
//! all of it runs on the host.
#![no_std]

pub mod board;
pub mod instruction;
pub mod request;
pub mod tlb;

pub use board::{Board, Full};
pub use instruction::Instruction;
pub use request::{Limits, Operands, Refused, Request};
pub use tlb::{Tlb, perform};
