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

/// Prints a line although the panicking CPU, or one that never runs again, may hold the console.
pub(crate) fn line_in_panic(text: fmt::Arguments<'_>) {
    semihosting::println!("{text}");
}

/// Ends the emulator with `code`.
pub fn exit(code: i32) -> ! {
    semihosting::process::exit(code)
}

/// The command line: words with a space between them.
pub struct CommandLine {
    text: [u8; Self::CAPACITY],
    len: usize,
}

impl CommandLine {
    const CAPACITY: usize = 1024;

    /// Asks the emulator. A first word that names the kernel is left out: `name`, or a file.
    ///
    /// # Panics
    /// When the emulator hands over no command line of less than 1 KiB of UTF-8.
    #[must_use]
    pub fn read(name: &str) -> Self {
        let arguments =
            env::args::<{ Self::CAPACITY }>().expect("semihosting gives a command line");
        let mut line = Self {
            text: [0; Self::CAPACITY],
            len: 0,
        };
        for (index, word) in (&arguments).enumerate() {
            let word = word.expect("the command line is UTF-8");
            if index > 0 || !(word == name || word.contains(['/', '.'])) {
                line.push(word);
            }
        }
        line
    }

    fn push(&mut self, word: &str) {
        let end = self.len + word.len();
        self.text[self.len..end].copy_from_slice(word.as_bytes());
        self.text[end] = b' ';
        self.len = end + 1;
    }

    /// The words.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text[..self.len]).unwrap_or_default()
    }
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}
