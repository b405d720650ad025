//! What the on-target tests share: the start of a test, its CPUs, and stale translations made on purpose.
#![no_std]

pub mod attempt;
pub mod backend;
pub mod batch;
pub mod case;
pub mod keeping;
pub mod page;
pub mod protect;
pub mod race;
pub mod rig;
mod start;
mod suite;
