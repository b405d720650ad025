//! Broadcast invalidation: INVLPGB and TLBSYNC (AMD).

mod operand;

pub use operand::{Invlpgb, InvlpgbFlags};
