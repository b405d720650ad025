//! On-target tests: shootdown by interrupt, with the own TLB flushed meanwhile.
#![no_std]
#![no_main]

flush_cases::flush_tests!(shootdown::x86_64::ConcurrentIpi<x86_kernel::platform::Kernel>);
