//! The kernel's side of `shootdown`: what a real kernel would write once.

use core::{arch::asm, hint::spin_loop};

use shootdown::{CpuSlot, Cpus, IpiPlatform, Platform};

use crate::{MAX_CPUS, apic, host, percpu};

/// The vector of the flush interrupt; those of further flushers follow.
pub const FLUSH_VECTOR: u8 = 0xe0;

/// The bit of RFLAGS that lets interrupts in.
const INTERRUPTS: usize = 1 << 9;

/// This kernel, as the crate sees it. `FLUSHER` tells flushers apart that run side by side, which only a benchmark
/// does.
#[derive(Debug)]
pub struct Kernel<const FLUSHER: usize = 0>;

// SAFETY: numbers come from GS, which `percpu` sets to a different one on each CPU; each CPU runs one thread of
// execution, which never moves; interrupts are turned on only where they were on; the slots are in a static array.
unsafe impl<const FLUSHER: usize> Platform for Kernel<FLUSHER> {
    const CPUS: usize = MAX_CPUS;

    #[inline]
    fn current_cpu() -> usize {
        percpu::current()
    }

    // There is one thread of execution a CPU, so it is always pinned.
    #[inline]
    fn pin() {}

    #[inline]
    fn unpin() {}

    #[inline]
    fn irq_save() -> usize {
        let flags: usize;
        // SAFETY: turns interrupts off, and nothing else.
        unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
        flags & INTERRUPTS
    }

    #[inline]
    fn irq_restore(state: usize) {
        if state != 0 {
            // SAFETY: they were on before the matching `irq_save`.
            unsafe { asm!("sti", options(nostack)) };
        }
    }

    #[inline]
    fn slot(cpu: usize) -> &'static CpuSlot {
        &percpu::slots(cpu)[FLUSHER]
    }

    #[inline]
    fn own_slot() -> &'static CpuSlot {
        &percpu::own_slots()[FLUSHER]
    }

    #[inline]
    fn relax() {
        host::disturb();
        spin_loop();
    }

    fn stuck(cpu: usize, turns: u64) {
        // A run has a time limit, and a panic says more than a hang.
        assert!(
            turns < 64 * shootdown::STUCK_AFTER,
            "CPU {cpu} does not answer"
        );
    }
}

// SAFETY: a fixed interrupt to an enabled local APIC stays pending until the CPU takes it; the handler runs behind an
// interrupt gate.
unsafe impl<const FLUSHER: usize> IpiPlatform for Kernel<FLUSHER> {
    #[inline]
    fn send_flush_ipi(targets: Cpus<'_>) {
        apic::send_to_mask(FLUSH_VECTOR + FLUSHER as u8, targets.words()[0]);
    }
}
