//! arm64: TLBI broadcast. Hardware reaches every CPU of the Inner Shareable domain, so no CPU is interrupted.
//!
//! ```text
//! page-table stores ─ DSB ISHST ─▶ TLBI ...IS ─▶ (more TLBIs) ─ DSB ISH ─▶ complete   (kernel: then ISB)
//! ```
//!
//! The regime is EL1&0, or EL2&0 where HCR_EL2.{E2H, TGE} is {1, 1}: there the same instructions and registers apply.

mod asid;
mod broadcast;
mod config;
mod entry;
mod flush;
#[cfg(all(feature = "_sim", not(loom)))]
mod inspect;
mod instructions;
#[cfg(target_arch = "aarch64")]
mod leaf;
mod lifecycle;
mod operand;
pub mod range;
mod regime;
mod switch;

pub use broadcast::{Broadcast, Hardware};
pub use config::{Config, InitError};
pub use entry::needs_flush;
pub use flush::MAX_TLBI_OPERATIONS;
pub use instructions::{Instructions, Tlbi};
#[cfg(all(target_arch = "aarch64", feature = "_counterproof"))]
#[doc(hidden)]
pub use leaf::skip_invalidations;
pub use operand::by_address;
