//! Boots bare-metal kernels under QEMU with a time limit and tells apart how they ended.
//!
//! The binary of this package runs `embedded-test` binaries, one boot per test; `xtask` boots the example kernels
//! with the same machines.

pub mod elf_tests;
pub mod ended;
pub mod machine;
pub mod process;
pub mod verdict;
