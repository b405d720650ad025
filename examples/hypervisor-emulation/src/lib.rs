//! What hypervisors do for a guest's flushes, for kernels that run where there is none: Hyper-V's flush hypercalls, and
//! what CPUID says of Hyper-V and KVM.
//!
//! Nothing here knows the crate under test: operands are read as the specification has them (Hypervisor Top Level
//! Functional Specification, "TLFS", chapters "Hypercall Interface" and "Virtual MMU"), and refused where it, or KVM's
//! implementation of it, refuses them. Nothing here touches a machine either: so all of it runs on the host.
#![no_std]

pub mod cpuid;
pub mod hypercall;
pub mod instruction;
pub mod processors;

pub use hypercall::{Flush, Status};
pub use instruction::is_hypercall;
pub use processors::Processors;
