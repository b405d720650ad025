//! x86_64: one protocol (generations, PCID slots, lazy mode, freed tables) and several couriers.

mod instructions;

pub use instructions::{Instructions, InvpcidKind};
