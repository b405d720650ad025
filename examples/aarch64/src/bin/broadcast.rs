//! tmp
#![no_std]
#![no_main]
use shootdown_examples_aarch64::*;
aarch64_rt::entry!(main, 40);
fn main(_: u64, _: u64, _: u64, _: u64) -> ! {
    let _ = boot::reserved_root();
    panic!("end")
}
