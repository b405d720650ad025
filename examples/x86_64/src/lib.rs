//! Boot support for small x86_64 kernels that run under QEMU: everything a kernel needs before it can use
//! `shootdown`, and nothing that flushes a TLB.
//!
//! A kernel names its main function with [`entry!`](crate::entry) and, unless something else defines one, its panic
//! handler with [`panic_to_exit!`](crate::panic_to_exit). Memory is identity mapped up to 4 GiB in the first
//! top-level slot, which all address spaces share.
#![no_std]
#![cfg(all(target_arch = "x86_64", target_os = "none"))]

pub mod apic;
pub mod arena;
pub mod bench;
pub mod boot;
pub mod cmdline;
pub mod console;
pub mod demo;
pub mod exit;
pub mod frames;
pub mod fw_cfg;
pub mod machine;
pub mod paging;
pub mod percpu;
pub mod platform;
pub mod probe;
pub mod smp;
pub mod traps;

/// The most CPUs a kernel runs on.
pub const MAX_CPUS: usize = 16;
