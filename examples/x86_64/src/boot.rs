//! From the loader to the kernel's main function.

use core::arch::global_asm;

use x86_64::instructions::port::Port;

use crate::{MAX_CPUS, apic, cmdline, invlpgb, percpu, traps};

const STACK_SIZE: usize = 64 * 1024;

global_asm!(include_str!("boot.s"), max_cpus = const MAX_CPUS, stack_size = const STACK_SIZE);

/// Makes `$main`, a `fn() -> !`, the function that runs on the boot CPU once it is set up.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[unsafe(no_mangle)]
        fn kernel_main() -> ! {
            let main: fn() -> ! = $main;
            main()
        }
    };
}

unsafe extern "Rust" {
    /// Defined by [`entry!`](crate::entry).
    safe fn kernel_main() -> !;
}

/// Called by the boot code on the boot CPU, once, with the physical address of the loader's `hvm_start_info`.
#[unsafe(no_mangle)]
extern "C" fn boot_cpu_main(start_info: usize) -> ! {
    mask_legacy_interrupts();
    percpu::init(0);
    traps::load();
    // SAFETY: this is the pointer that the loader passed, and its memory is not used for anything else.
    unsafe { cmdline::init(start_info) };
    apic::detect();
    apic::enable();
    invlpgb::join();
    x86_64::instructions::interrupts::enable();
    kernel_main()
}

/// Firmware leaves the timer on, and the 8259 would deliver it as vector 8.
fn mask_legacy_interrupts() {
    for port in [0x21, 0xa1] {
        // SAFETY: these are the mask registers of the two interrupt controllers; nothing here uses those.
        unsafe { Port::<u8>::new(port).write(0xff) };
    }
}
