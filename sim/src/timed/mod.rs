//! Virtual time: the shipping code on up to 4096 CPUs whose operations cost what [`costs`] says.
//!
//! It judges nothing: correctness is the other machine's. Each CPU has a clock of its own; the CPU whose clock is least
//! acts. Atomic operations cost by what the cache line's last users leave behind, instructions by the
//! table, waiting loops park until a line that they have read is written. Two runs give the same figures.

mod arm;
pub mod chart;
mod clockwork;
pub mod costs;
mod cpu;
pub mod experiment;
mod hook;
mod host;
mod hypercall;
mod lines;
pub mod page;
mod platform;
pub mod report;
mod wait;
mod world;
mod x86;

pub use arm::TimedArm;
pub use costs::Costs;
pub use hypercall::{TimedCall, TimedGuest};
pub use platform::TimedPlatform;
pub use world::TimedCourier;
pub use x86::TimedX86;

pub(crate) use hook::{fence, is_running, load, load_byte, rmw, rmw_byte, store, store_byte};
