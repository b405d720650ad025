//! The protocol under [loom], which explores the interleavings of small models and, within each, what the C11 memory
//! model lets a load return.
//!
//! The models run the shipping code; see [`machine`] for what stands in for the hardware. Each has twins that lack one
//! barrier or one step, and a twin passes only if the model's own judgement catches it.
//!
//! Not covered here, but by the simulated machine: interrupts that preempt and nest, interrupts that overtake stores, and
//! what only more CPUs or longer runs reach, such as PCIDs that are given to another space.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p shootdown --test loom --release -- --nocapture
//! ```
//!
//! [loom]: https://docs.rs/loom
#![cfg(loom)]

mod arm64;
mod arm_cpu;
mod asid;
mod broadcast;
mod cpu;
mod explore;
mod gather;
mod kernel;
mod kvm;
mod lazy;
mod local;
mod machine;
mod page;
mod platform;
mod promotion;
mod retire;
mod ring;
mod serve;
mod switch;
mod trim;
mod waiting;
