//! Instructions that this CPU does not have and that something stands in for.

use crate::{host, invlpgb, traps::TrapFrame};

/// Who stands in, asked in turn: each says whether the instruction was one of its own.
const EMULATED: [fn(&mut TrapFrame) -> bool; 2] = [invlpgb::emulate, host::emulate_hypercall];

/// Executes the instruction that raised #UD, if somebody stands in for it.
pub(crate) fn emulate(frame: &mut TrapFrame) -> bool {
    // Only the kernel's own instructions.
    frame.cs & 3 == 0 && EMULATED.iter().any(|emulate| emulate(frame))
}
