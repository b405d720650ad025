//! On-target tests: INVLPGB, with a global PCID for every space.
#![no_std]
#![no_main]

flush_cases::flush_tests!(flush_cases::backend::Global);
