//! Tests of the crate that run on x86_64 under QEMU: what each does, for any courier. The test files name them.
//!
//! Each flush is tried three ways ([`Flush`]): done, with the invalidation instruction left out, and left out as a
//! whole. The last two must show stale translations, or the first would prove nothing.
#![no_std]
#![cfg(all(target_arch = "x86_64", target_os = "none"))]

pub mod backend;
pub mod collect;
pub mod emulation;
pub mod interrupts;
pub mod kernel;
pub mod lazy;
pub mod lifecycle;
pub mod observe;
pub mod pages;
pub mod paravirt;
pub mod promotion;
pub mod race;
pub mod refused;
mod room;
pub mod space;
mod suite;

pub use backend::{Backend, bring_up};
pub use observe::Flush;
