//! Example kernel: TLB invalidation that the hardware broadcasts.
//!
//! The report is text on semihosting. The log is defmt's, on the UART: boot with `-serial file:log.bin` in place of
//! `-serial null`, and decode it by `defmt-print -e ELF < log.bin`.
#![no_std]
#![no_main]

use aarch64_rt::entry;
use shootdown::aarch64::Broadcast;
use shootdown_examples_aarch64::demo::demo;
use shootdown_examples_aarch64::platform::Kernel;
use shootdown_workload::run;

const BACKEND: &str = "broadcast";

static TLB: Broadcast<Kernel> = Broadcast::new();

entry!(main, 64);
fn main(_: u64, _: u64, _: u64, _: u64) -> ! {
    demo(&TLB, BACKEND, |machine, options| {
        run(machine, BACKEND, options)
    })
}
