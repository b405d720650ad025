//! A deterministic machine that runs `shootdown`'s shipping code, and an oracle that judges it.
//!
//! **Engine.** Each CPU is a coroutine. Every hooked atomic operation of the crate, every instruction of its machine
//! traits, every simulated memory access and every turn of a waiting loop is a scheduling point, where another CPU may
//! run, a store drain, an interrupt or NMI arrive, or any CPU translate speculatively. All of it follows from a seed;
//! a failing run is a sparse map from points to choices, which is shrunk, printed as a [`replay`] and drawn as a trace.
//! A CPU that spins is parked until something that it has read changes, so deadlocks are found.
//!
//! **Machine.** x86_64: total store order with store buffers, PCIDs, global pages, 2 MiB pages, paging-structure caches;
//! the flush interrupt may overtake stores that were not published. arm64: page-table stores, TLBIs and writes of TTBR0
//! take effect at any step up to the barrier that orders them. TLBs evict nothing. Freed frames and tables are
//! poisoned and reused at once.
//!
//! **Oracle.** At the moment a flush completes, and at every use of a translation, entries are compared with what
//! the flush was for. See the contract at [`shootdown::TlbFlusher`].
//!
//! **What it does not see.** Reordering that x86 does not do (weaker C11 orderings): that is loom's. Which of the
//! crate's broken variants is caught by which, [`variants`] lists.
#![cfg(not(loom))]

pub mod campaign;
mod choice;
mod chooser;
mod guest;
pub mod hunt;
mod machine;
mod platform;
pub mod replay;
mod rng;
mod scenario;
pub mod shrink;
pub mod timed;
pub mod variants;

pub use choice::{Choice, Point, Schedule};
pub use machine::{Mode, Tally, arm::Arm, x86::X86};
pub use platform::SimPlatform;
pub use scenario::{BackendKind, Failure, Outcome, Spec, run};
