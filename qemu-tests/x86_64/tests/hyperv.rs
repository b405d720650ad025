//! On-target tests: a guest of Hyper-V.
#![no_std]
#![no_main]

flush_cases::flush_tests!(flush_cases::backend::HyperVPv);
