//! What the on-target tests share: the start of a test, its CPUs, and stale translations made on purpose.
#![no_std]

pub mod attempt;
pub mod batch;
pub mod case;
pub mod page;
pub mod protect;
pub mod race;
pub mod rig;
mod start;
