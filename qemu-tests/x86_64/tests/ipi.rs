//! On-target tests: shootdown by interrupt, one step after the other.
#![no_std]
#![no_main]

flush_cases::flush_tests!(shootdown::x86_64::Ipi<x86_kernel::platform::Kernel>);
