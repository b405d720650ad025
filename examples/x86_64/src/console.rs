//! Text output through QEMU's debug console (`-debugcon stdio`).

use core::fmt::{self, Write};

use spin::Mutex;
use x86_64::instructions::port::Port;

/// Writes bytes as they come; lines of several CPUs mix.
#[derive(Debug)]
pub struct DebugConsole;

impl Write for DebugConsole {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut port = Port::<u8>::new(0xe9);
        for byte in text.bytes() {
            // SAFETY: port 0xe9 is the debug console; on a machine without one the write goes nowhere.
            unsafe { port.write(byte) };
        }
        Ok(())
    }
}

static LOCK: Mutex<DebugConsole> = Mutex::new(DebugConsole);

/// Prints without mixing with other CPUs. Not for interrupt handlers: the interrupted code may hold the lock.
pub fn print(text: fmt::Arguments<'_>) {
    // The console takes every byte, and nothing else can fail.
    let _ = LOCK.lock().write_fmt(text);
}

/// Prints at once, whoever holds the lock: for the last words of a panic.
pub fn print_without_lock(text: fmt::Arguments<'_>) {
    let _ = DebugConsole.write_fmt(text);
}

/// Prints a line on the console.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => {
        $crate::console::print(format_args!("{}\n", format_args!($($text)*)))
    };
}
