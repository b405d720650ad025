//! arm64: hardware carries invalidations to every CPU of the Inner Shareable domain, so no CPU is interrupted; and where
//! only one CPU uses a space, nobody else need hear of it.
//!
//! ```text
//! page-table stores ─ DSB ISHST ─▶ TLBI ...IS ─▶ (more TLBIs) ─ DSB ISH ─▶ complete   (kernel: then ISB)
//! ```
//!
//! [`Broadcast`] always broadcasts. [`ActiveCpu`] and [`Local`] decide for each flush whether it may stay on
//! this CPU; [`policy`] has the rules, their races, and when to use which.
//!
//! The regime is EL1&0, or EL2&0 where HCR_EL2.{E2H, TGE} is {1, 1}: there the same instructions and registers apply.

mod config;
mod entry;
mod features;
mod flush;
#[cfg(all(feature = "_sim", not(loom)))]
mod inspect;
mod instructions;
#[cfg(target_arch = "aarch64")]
mod leaf;
mod lifecycle;
mod operand;
pub mod policy;
pub mod range;
mod regime;
mod switch;
mod tlb;

pub use config::{Config, InitError};
pub use entry::needs_flush;
pub use features::Features;
pub use flush::MAX_TLBI_OPERATIONS;
pub use instructions::{Instructions, Tlbi};
#[cfg(all(target_arch = "aarch64", feature = "_counterproof"))]
#[doc(hidden)]
pub use leaf::skip_invalidations;
pub use operand::by_address;
pub use tlb::{ActiveCpu, Broadcast, Hardware, Local, Tlb};
