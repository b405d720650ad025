//! QEMU's debug console (port 0xe9) and `isa-debug-exit` (port 0xf4).

use core::arch::asm;
use core::fmt::{Arguments, Write};

/// Value for [`exit`] that says the test passed: QEMU ends with status 33.
pub const PASSED: u32 = 0x10;
/// Value for [`exit`] that says the test panicked or returned `Err`: QEMU ends with status 35.
pub const FAILED: u32 = 0x11;
/// The command line names no test: QEMU ends with status 39.
pub const BAD_COMMAND_LINE: u32 = 0x13;

/// Ends QEMU with status `(value << 1) | 1`; halts this CPU for good where the exit device is missing.
pub fn exit(value: u32) -> ! {
    // SAFETY: the port is that of QEMU's exit device, which touches no memory of the kernel; where nothing
    // answers to it, the write has no effect.
    unsafe {
        asm!("out dx, eax", in("dx") 0xf4_u16, in("eax") value, options(nomem, nostack, preserves_flags))
    };
    loop {
        // SAFETY: the test is over; nothing of the kernel runs on this CPU after the halt.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// Writes to the debug console.
pub fn print(text: Arguments<'_>) {
    // The writer below never fails.
    let _ = DebugConsole.write_fmt(text);
}

struct DebugConsole;

impl Write for DebugConsole {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the port is that of QEMU's debug console, which only copies the byte out.
            unsafe {
                asm!("out dx, al", in("dx") 0xe9_u16, in("al") byte, options(nomem, nostack, preserves_flags))
            };
        }
        Ok(())
    }
}
