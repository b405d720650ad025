#![doc = include_str!("../README.md")]
#![no_std]

mod asid;
#[cfg_attr(not(any(loom, feature = "_sim")), allow(unused))]
#[doc(hidden)]
pub mod atomic;
mod batch;
#[doc(hidden)]
pub mod counters;
#[doc(hidden)]
pub mod coverage;
mod cpus;
mod domain;
mod error;
mod flusher;
mod gather;
#[cfg(all(feature = "_sim", not(loom)))]
mod inspect;
mod loaded_space;
#[cfg(feature = "spin")]
mod lock;
mod paging;
mod pending;
mod platform;
mod polling_lock;
mod private;
mod range;
mod request;
mod slot;
mod space;
#[doc(hidden)]
pub mod variant;

#[path = "../arch/aarch64/mod.rs"]
pub mod aarch64;
#[path = "../arch/x86_64/mod.rs"]
pub mod x86_64;

pub use batch::Batch;
pub use counters::Counters;
pub use cpus::{CpuOutOfRange, CpuSet, Cpus};
pub use error::{OnlineError, RetireError, SpaceError};
pub use flusher::{Needed, Outer, Scope, TlbFlusher, Waiting};
pub use gather::{FrameArray, FrameBag, Gather};
#[cfg(feature = "spin")]
pub use lock::{Serve, ServeWhileSpinning};
pub use paging::{Granule, Paging, Stride};
pub use pending::Pending;
pub use platform::{IpiPlatform, Platform, STUCK_AFTER};
pub use range::{Range, RangeError};
pub use request::{ChangeFlags, Request};
pub use slot::CpuSlot;
pub use space::Space;
