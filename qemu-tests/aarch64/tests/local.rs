//! On-target tests: flushes stay on a CPU while no other runs the space.
#![no_std]
#![no_main]

flush_cases::flush_tests!(shootdown::aarch64::Local<shootdown_examples_aarch64::platform::Kernel>);
