//! Exceptions and panics.

use core::panic::PanicInfo;

use aarch64_cpu::registers::{ESR_EL1, ESR_EL2, FAR_EL1, FAR_EL2, Readable};
use aarch64_rt::{ExceptionHandlers, RegisterStateRef, exception_handlers};

use crate::{boot, console, cpu, probe};

struct Vectors;

impl ExceptionHandlers for Vectors {
    extern "C" fn sync_current(mut state: RegisterStateRef) {
        let (syndrome, address) = match boot::exception_level() {
            2 => (ESR_EL2.get(), FAR_EL2.get()),
            _ => (ESR_EL1.get(), FAR_EL1.get()),
        };
        if !probe::recover(&mut state, syndrome, address) {
            panic!(
                "unexpected exception at {:#x}: ESR {syndrome:#x}, FAR {address:#x}",
                state.elr
            );
        }
    }
}

exception_handlers!(Vectors);

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    // Other CPUs go on while this one prints: the exit ends them all.
    if boot::exception_level() == 1 {
        console::line_in_panic(format_args!("CPU {}: {info}", cpu::id()));
    } else {
        console::line_in_panic(format_args!("{info}"));
    }
    semihosting::process::abort()
}
