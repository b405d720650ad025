//! Makes `#[embedded_test::tests]` work on `x86_64-unknown-none`.
//!
//! The `embedded-test` crate talks to its host over semihosting, which x86 does not have, and does not build there.
//! Its attribute macros do: this package supplies, under the same library name, what they expand to.
//! The host passes the address of one test as the kernel's command line (`run_addr <decimal>`) and reads the result
//! from QEMU's exit status: see [`PASSED`] and [`FAILED`].
//!
//! The kernel that holds the tests boots by itself, supplies the panic handler (which ends in [`exit`]`(`[`FAILED`]`)`),
//! and calls [`start`] with its command line. It is linked with `-Tembedded-test.x` from `embedded-test-linker-script`,
//! or the link ends in an undefined `_embedded_test_setup`.
#![cfg(target_arch = "x86_64")]
#![cfg_attr(not(test), no_std)]

mod command;
mod debug_ports;

pub use debug_ports::{FAILED, PASSED, exit};
pub use embedded_test_macros::{setup, tests};

/// What a test returned: `()` always passes, a `Result` passes if it is `Ok`.
pub trait TestOutcome {
    /// Whether the test passed; says on the console why if it did not.
    fn report(&self) -> bool;
}

impl TestOutcome for () {
    fn report(&self) -> bool {
        true
    }
}

impl<T, E: core::fmt::Debug> TestOutcome for Result<T, E> {
    fn report(&self) -> bool {
        match self {
            Ok(_) => true,
            Err(error) => {
                debug_ports::print(format_args!("the test returned Err({error:?})\n"));
                false
            }
        }
    }
}

/// Runs the test whose address stands on the command line and ends QEMU with its result.
///
/// A command line without a test ends with status 39, which the host takes for neither a pass nor a panic.
///
/// # Safety
/// `command_line` comes from the test runner, which read the address from the very ELF file that is running.
pub unsafe fn start(command_line: &str) -> ! {
    unsafe extern "Rust" {
        // The linker script points this at the function under `#[embedded_test::setup]`, or else at `default_setup`.
        fn _embedded_test_setup();
    }
    // SAFETY: both candidates are safe functions without arguments.
    unsafe { _embedded_test_setup() };
    let Some(address) = command::test_address(command_line) else {
        debug_ports::print(format_args!(
            "no `run_addr <decimal>` on the command line {command_line:?}\n"
        ));
        exit(debug_ports::BAD_COMMAND_LINE)
    };
    // SAFETY: the caller guarantees that the address is that of an entry point, which the macro makes a `fn() -> !`.
    let entry = unsafe { core::mem::transmute::<usize, fn() -> !>(address) };
    entry()
}

#[used]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".embedded_test.meta")]
static EMBEDDED_TEST_VERSION: usize = 1;

#[doc(hidden)]
pub mod export {
    //! What the attribute macros call.

    /// Ends QEMU with the result of a test.
    pub fn check_outcome<T: crate::TestOutcome>(outcome: T) -> ! {
        crate::exit(if outcome.report() {
            crate::PASSED
        } else {
            crate::FAILED
        })
    }

    #[unsafe(export_name = "__embedded_test_default_setup")]
    fn default_setup() {}
}
