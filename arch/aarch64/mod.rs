//! arm64: TLBI broadcast.

mod instructions;

pub use instructions::{Instructions, Tlbi};
