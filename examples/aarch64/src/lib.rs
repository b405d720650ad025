//! Boot support for the arm64 example kernels and the on-target tests, on QEMU's `virt` machine with 128 MiB.
//!
//! The kernel lives in an identity map of the first 2 GiB, made of global entries that every root shares; the window
//! under test lies above it. A kernel window of its own is translated by TTBR1.
#![no_std]

pub mod boot;
pub mod console;
pub mod cpu;
pub mod crew;
pub mod demo;
pub mod frames;
pub mod lock;
pub mod machine;
pub mod paging;
pub mod platform;
pub mod probe;
mod uart_log;
mod vectors;
