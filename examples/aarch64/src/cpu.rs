//! CPUs: their numbers, starting and stopping them through PSCI, and interrupt masking.

use core::fmt;

use aarch64_cpu::registers::{DAIF, Readable, TPIDR_EL1, Writeable};
use aarch64_rt::{Stack, start_core};
use smccc::Hvc;
use smccc::psci::{self, AffinityState, LowestAffinityLevel};

use crate::boot;
use crate::lock::relax;

/// CPUs beyond this number are left off.
pub const MAX: usize = 64;

/// QEMU's virt machine with a GICv3 puts this many CPUs into an affinity-1 group.
const GROUP: usize = 16;

const STACK_PAGES: usize = 16;

#[unsafe(link_section = ".stack.secondary")]
static mut STACKS: [Stack<STACK_PAGES>; MAX] = [const { Stack::new() }; MAX];

/// The number of the calling CPU.
#[inline]
#[must_use]
pub fn id() -> usize {
    TPIDR_EL1.get() as usize
}

fn mpidr(id: usize) -> u64 {
    (((id / GROUP) << 8) | (id % GROUP)) as u64
}

fn state(id: usize) -> Result<AffinityState, psci::Error> {
    psci::affinity_info::<Hvc>(mpidr(id), LowestAffinityLevel::All)
}

/// How many CPUs the machine has, up to [`MAX`]: the firmware refuses to tell the state of one that does not exist.
#[must_use]
pub fn present() -> usize {
    (0..MAX).take_while(|&id| state(id).is_ok()).count()
}

/// Starts CPU `id`, which calls `entry(id)` and is switched off when that returns.
///
/// # Errors
/// [`StartError`] when the firmware refuses, because the CPU does not exist or is on.
pub fn start(id: usize, entry: fn(usize)) -> Result<(), StartError> {
    assert!(id < MAX, "CPU {id} has no stack");
    // A CPU that is on still uses its stack; it must not be written to.
    match state(id) {
        Ok(AffinityState::Off) => {}
        Ok(_) => return Err(StartError(psci::Error::AlreadyOn)),
        Err(error) => return Err(StartError(error)),
    }
    let stack = (&raw mut STACKS)
        .cast::<Stack<STACK_PAGES>>()
        .wrapping_add(id);
    // SAFETY: the stack is CPU `id`'s alone, and that CPU is off; statics stay valid, and all memory is mapped alike.
    unsafe {
        start_core::<Hvc, _, STACK_PAGES>(mpidr(id), stack, move || {
            boot::init_cpu(id);
            entry(id);
            power_off()
        })
    }
    .map_err(StartError)
}

/// Switches the calling CPU off.
pub fn power_off() -> ! {
    irq_save();
    let refusal = psci::cpu_off::<Hvc>();
    panic!("the firmware keeps CPU {} on: {refusal:?}", id())
}

/// Waits until CPU `id`, which is on its way to [`power_off`], is off and can be started again.
pub fn wait_until_off(id: usize) {
    while !matches!(state(id), Ok(AffinityState::Off)) {
        relax();
    }
}

/// Masks interrupts on this CPU and returns what [`irq_restore`] wants.
#[inline]
pub fn irq_save() -> u64 {
    let before = DAIF.get();
    DAIF.write(DAIF::D::Masked + DAIF::A::Masked + DAIF::I::Masked + DAIF::F::Masked);
    before
}

/// Sets the interrupt masks to what they were at the matching [`irq_save`].
#[inline]
pub fn irq_restore(saved: u64) {
    DAIF.set(saved);
}

/// Why a CPU was not started.
#[derive(Clone, Copy, Debug)]
pub struct StartError(psci::Error);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the firmware did not start the CPU: {}", self.0)
    }
}

impl core::error::Error for StartError {}
