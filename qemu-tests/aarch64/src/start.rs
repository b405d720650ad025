//! From the boot code to the one test that this boot is for.

use aarch64_rt::entry;
use shootdown_examples_aarch64::boot;

unsafe extern "C" {
    /// embedded-test's entry: reads from the command line which test to run.
    fn main() -> !;
}

// Hundreds of spaces lie on the stack.
entry!(start, 160);
fn start(_: u64, _: u64, _: u64, _: u64) -> ! {
    boot::init_cpu(0);
    // SAFETY: the boot stack, translation and semihosting are set up, which is all that it needs; called once.
    unsafe { main() }
}
