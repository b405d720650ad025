//! Text to the host, the command line and the exit code, through semihosting.

use core::fmt;

use semihosting::experimental::env;

use crate::lock::Lock;

/// The run verified everything.
pub const EXIT_OK: i32 = 0;
/// The kernel could not run: a command line without sense, or a machine the crate refuses.
pub const EXIT_REFUSED: i32 = 2;
/// A read returned something that was unmapped before.
pub const EXIT_STALE: i32 = 3;

static CONSOLE: Lock<()> = Lock::new(());

/// Prints a line on the host's standard output. Lines of different CPUs don't mix.
pub fn line(text: fmt::Arguments<'_>) {
    let _guard = CONSOLE.lock();
    semihosting::println!("{text}");
}

/// Prints a piece of a line, for writers that make the lines themselves.
pub fn write(text: fmt::Arguments<'_>) {
    let _guard = CONSOLE.lock();
    semihosting::print!("{text}");
}

/// Prints a line although the panicking CPU, or one that never runs again, may hold the console.
pub(crate) fn line_in_panic(text: fmt::Arguments<'_>) {
    semihosting::println!("{text}");
}

/// Ends the emulator with `code`.
pub fn exit(code: i32) -> ! {
    semihosting::process::exit(code)
}

/// Calls `with` with each word of the command line but the first, which names the kernel.
///
/// # Panics
/// When the emulator hands over no command line of at most 1 KiB of UTF-8.
pub fn for_each_argument(mut with: impl FnMut(&str)) {
    let arguments = env::args::<1024>().expect("semihosting gives a command line");
    for argument in (&arguments).skip(1) {
        with(argument.expect("the command line is UTF-8"));
    }
}
