//! The crate's interface on the host: what goes in, which instructions come out, and what bad input meets.
//!
//! Concurrency is the business of the simulated machine and of loom; here a few threads stand for CPUs where an answer
//! is needed.
#![cfg(not(loom))]

mod aarch64;
mod drop;
mod gather;
mod hyperv;
mod hypervisor;
mod invlpgb;
mod kvm;
mod late_lazy;
mod lifecycle;
mod misuse;
mod platform;
mod waiting;
mod x86_64;
