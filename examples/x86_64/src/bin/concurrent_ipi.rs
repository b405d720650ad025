//! Example kernel: shootdown by interrupt, the own TLB flushed while it is under way.
#![no_std]
#![no_main]

use shootdown::x86_64::ConcurrentIpi;
use x86_kernel::{demo::demo, platform::Kernel};

x86_kernel::entry!(main);
x86_kernel::panic_to_exit!();

static TLB: ConcurrentIpi<Kernel> = ConcurrentIpi::new();

extern "C" fn serve() {
    TLB.handle_interrupt();
}

fn main() -> ! {
    demo(&TLB, "concurrent_ipi", |config| TLB.init(config), serve)
}
