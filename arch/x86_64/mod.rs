//! x86_64: one protocol (generations, PCID slots, lazy mode, freed tables) and several couriers that reach the other
//! CPUs.
//!
//! ```text
//!            flush                               another CPU
//!   page table changed                        ...runs the space
//!   generation + 1, full barrier
//!   who has it loaded? ──── interrupt ─────▶  generation read
//!   own TLB flushed meanwhile                 range, or all, dropped
//!   wait: generation reached,   ◀── seen ───  generation published
//!         another space, or lazy
//! ```
//!
//! Where the CPU broadcasts (INVLPGB), spaces that many CPUs run, and the kernel's mappings, need no interrupt:
//!
//! ```text
//!   page table changed, MFENCE
//!   INVLPGB of the global PCID ── hardware ──▶  entries dropped
//!   wait: TLBSYNC on the same CPU
//! ```
//!
//! [`Ipi`], [`ConcurrentIpi`] and [`InvlpgbIpi`] name a courier; [`Auto`] chooses at start-up.

mod announce;
mod broadcast;
mod carry;
mod config;
mod control;
mod courier;
mod detect;
mod dispatch;
mod entry;
#[cfg(all(feature = "_sim", not(loom)))]
mod inspect;
mod instructions;
#[cfg(target_arch = "x86_64")]
mod leaf;
mod lifecycle;
mod msrs;
mod page_range;
mod payload;
mod pcid;
mod retire;
mod serve;
mod switch;
mod targets;
mod tlb;
mod trim;
mod trim_mail;
mod wait;
mod waiting;

pub use broadcast::{Broadcast, Broadcasting, GlobalError, Invlpgb, InvlpgbFlags, PcidUse};
pub use config::{Config, InitError, Isolation};
pub use courier::{
    Any, Carried, Concurrent, Courier, CourierKind, Errand, ErrandScope, Serial, hyperv, kvm,
};
#[cfg(target_arch = "x86_64")]
pub use detect::detect;
pub use detect::{Features, GlobalInvlpg};
pub use entry::needs_flush;
pub use instructions::{Instructions, InvpcidKind};
#[cfg(all(target_arch = "x86_64", feature = "_counterproof"))]
#[doc(hidden)]
pub use leaf::skip_invalidations;
pub use msrs::Msrs;
pub use tlb::{Auto, ConcurrentIpi, Hardware, InvlpgbIpi, Ipi, Tlb};
