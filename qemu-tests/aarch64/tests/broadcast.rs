//! On-target tests: every invalidation is broadcast.
#![no_std]
#![no_main]

flush_cases::flush_tests!(
    shootdown::aarch64::Broadcast<shootdown_examples_aarch64::platform::Kernel>
);
