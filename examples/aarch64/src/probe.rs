//! Single loads and stores in the windows under test that survive a data abort.

use core::arch::naked_asm;

use aarch64_cpu::registers::ESR_EL1;
use aarch64_rt::RegisterStateRef;

use crate::paging;

/// A data abort taken by a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address that faulted.
    pub address: u64,
    /// What ESR_EL1 held.
    pub syndrome: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Outcome {
    /// The word that was read, or the address that faulted.
    value: u64,
    /// 0, or the syndrome of the data abort.
    syndrome: u64,
}

impl Outcome {
    fn into_result(self) -> Result<u64, Fault> {
        match self.syndrome {
            0 => Ok(self.value),
            syndrome => Err(Fault {
                address: self.value,
                syndrome,
            }),
        }
    }
}

/// Reads the word at `va` through the translation this CPU uses now.
///
/// # Errors
/// [`Fault`] when the access raised a data abort.
///
/// # Panics
/// When `va` is not an aligned address of a window under test.
pub fn read(va: u64) -> Result<u64, Fault> {
    check(va);
    // SAFETY: windows hold translations to pool frames only, which are accessed as atomic words; a fault is recovered.
    unsafe { load(va) }.into_result()
}

/// Writes the word at `va` through the translation this CPU uses now.
///
/// # Errors
/// [`Fault`] when the access raised a data abort.
///
/// # Panics
/// When `va` is not an aligned address of a window under test.
pub fn write(va: u64, value: u64) -> Result<(), Fault> {
    check(va);
    // SAFETY: as in `read`.
    unsafe { store(va, value) }.into_result().map(drop)
}

fn check(va: u64) {
    assert!(
        va.is_multiple_of(8) && paging::in_a_window(va),
        "{va:#x} is no aligned address of a window under test"
    );
}

// The access is the first instruction of each function: the handler knows it by the function's address, and goes on
// two instructions later, at the return.

/// # Safety
/// A translation of `va`, should there be one, leads to memory that may be read.
#[unsafe(naked)]
unsafe extern "C" fn load(va: u64) -> Outcome {
    naked_asm!("ldr x0, [x0]", "mov x1, xzr", "ret")
}

/// # Safety
/// A translation of `va`, should there be one, leads to memory that may be written.
#[unsafe(naked)]
unsafe extern "C" fn store(va: u64, value: u64) -> Outcome {
    naked_asm!("str x1, [x0]", "mov x1, xzr", "ret")
}

/// Makes a probe that aborted return its fault. `false` when something else raised the exception.
pub(crate) fn recover(state: &mut RegisterStateRef, syndrome: u64, address: u64) -> bool {
    let class = syndrome >> ESR_EL1::EC.shift & ESR_EL1::EC.mask;
    let is_data_abort = class == u64::from(ESR_EL1::EC::Value::DataAbortCurrentEL as u32);
    if !is_data_abort
        || !(state.elr == load as *const () as usize || state.elr == store as *const () as usize)
    {
        return false;
    }
    // SAFETY: at the return instruction x0 and x1 are the result, which the two values make valid.
    let registers = unsafe { state.get_mut() };
    registers.elr += 8;
    registers.registers[0] = address;
    registers.registers[1] = syndrome;
    true
}
