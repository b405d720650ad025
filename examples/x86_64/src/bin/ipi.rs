//! Example kernel: shootdown by interrupt, one step after the other.
#![no_std]
#![no_main]

use shootdown::x86_64::Ipi;
use x86_kernel::{demo::demo, platform::Kernel};

x86_kernel::entry!(main);
x86_kernel::panic_to_exit!();

static TLB: Ipi<Kernel> = Ipi::new();

extern "C" fn serve() {
    TLB.handle_interrupt();
}

fn main() -> ! {
    demo(&TLB, "ipi", |config| TLB.init(config), serve)
}
