//! A deterministic machine that runs `shootdown`'s shipping code, and an oracle that judges it.
#![cfg(not(loom))]

mod choice;
mod chooser;
mod machine;
mod platform;
mod rng;
mod scenario;

pub use machine::{Mode, Tally, arm::Arm, x86::X86};
pub use platform::SimPlatform;
pub use scenario::{BackendKind, Failure, Outcome, Spec, run};
