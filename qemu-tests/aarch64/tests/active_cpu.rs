//! On-target tests: flushes stay on a CPU while no other has ever loaded the space.
#![no_std]
#![no_main]

flush_cases::flush_tests!(
    shootdown::aarch64::ActiveCpu<shootdown_examples_aarch64::platform::Kernel>
);
