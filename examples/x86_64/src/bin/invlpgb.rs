//! Example kernel: INVLPGB for spaces that many CPUs run, and interrupts for the others.
//!
//! The flusher executes the real instructions; where the CPU lacks them they are emulated, see `x86_kernel::invlpgb`.
#![no_std]
#![no_main]

use x86_kernel::{
    crowds,
    demo::{Demo, Extras},
    invlpgb, println,
};

x86_kernel::entry!(main);
x86_kernel::panic_to_exit!();

static TLB: crowds::Tlb = crowds::Tlb::new();

extern "C" fn serve() {
    TLB.handle_interrupt();
}

fn main() -> ! {
    invlpgb::start();
    println!(
        "{}",
        if invlpgb::is_emulated() {
            "INVLPGB, TLBSYNC and PCIDs are emulated: this CPU lacks them"
        } else {
            "INVLPGB, TLBSYNC and PCIDs are the CPU's own"
        }
    );
    Demo {
        tlb: &TLB,
        backend: "invlpgb",
        config: crowds::config,
        init: |config| TLB.init(config),
        on_flush_interrupt: serve,
        skip: Some(crowds::skip),
        work: crowds::work,
        extras: Extras::default(),
    }
    .run()
}
