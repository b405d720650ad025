//! The kernel's side of `shootdown`: what a real kernel would write once.

use core::hint::spin_loop;

use shootdown::{CpuSlot, Cpus, IpiPlatform, Platform};
use x86_64::instructions::interrupts;

use crate::{MAX_CPUS, apic, host, percpu};

/// The vector of the flush interrupt.
pub const FLUSH_VECTOR: u8 = 0xe0;

/// This kernel, as the crate sees it.
#[derive(Debug)]
pub struct Kernel;

static SLOTS: [CpuSlot; MAX_CPUS] = [const { CpuSlot::new() }; MAX_CPUS];

// SAFETY: numbers come from GS, which `percpu` sets to a different one on each CPU; each CPU runs one thread of
// execution, which never moves; interrupts are turned on only where they were on; the slots are a static array.
unsafe impl Platform for Kernel {
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
        let enabled = interrupts::are_enabled();
        interrupts::disable();
        usize::from(enabled)
    }

    #[inline]
    fn irq_restore(state: usize) {
        if state != 0 {
            interrupts::enable();
        }
    }

    #[inline]
    fn slot(cpu: usize) -> &'static CpuSlot {
        &SLOTS[cpu]
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
unsafe impl IpiPlatform for Kernel {
    #[inline]
    fn send_flush_ipi(targets: Cpus<'_>) {
        apic::send(FLUSH_VECTOR, targets.iter());
    }
}
