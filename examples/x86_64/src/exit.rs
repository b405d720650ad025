//! Ends the run with a status, through QEMU's `isa-debug-exit` device.

use x86_64::instructions::{hlt, interrupts, port::Port};

/// How a run ended. QEMU's exit status is `2 * value + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Exit {
    /// All went well: QEMU exits with 33.
    Success = 0x10,
    /// A panic or an unexpected trap: 35.
    Abort = 0x11,
    /// A read returned what a completed flush should have made unreachable: 37.
    Stale = 0x12,
    /// The command line was not understood: 39.
    Usage = 0x13,
}

/// Ends the run. Without the device the CPU halts for good.
pub fn exit(status: Exit) -> ! {
    // SAFETY: 0xf4 is where the kernels ask for the exit device; on a machine without it the write goes nowhere.
    unsafe { Port::<u32>::new(0xf4).write(status as u32) };
    loop {
        interrupts::disable();
        hlt();
    }
}

/// Defines a panic handler that prints the message and ends the run with [`Exit::Abort`].
#[macro_export]
macro_rules! panic_to_exit {
    () => {
        #[panic_handler]
        fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
            $crate::exit::report_panic(info)
        }
    };
}

/// Prints a panic and ends the run with [`Exit::Abort`].
pub fn report_panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crate::console::print_without_lock(format_args!("cpu {}: {info}\n", crate::percpu::current()));
    exit(Exit::Abort)
}
