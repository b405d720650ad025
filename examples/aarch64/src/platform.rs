//! What the crate must know of this kernel.

use shootdown::aarch64::Config;
use shootdown::{CpuSlot, Granule, Paging, Platform, STUCK_AFTER};

use crate::{boot, cpu, lock};

/// This kernel. It has no threads besides one flow of execution per CPU, and takes no interrupts that switch.
#[derive(Clone, Copy, Debug)]
pub struct Kernel;

static SLOTS: [CpuSlot; cpu::MAX] = [const { CpuSlot::new() }; cpu::MAX];

// SAFETY: CPU numbers are below `cpu::MAX`, set once per CPU before it calls anything else, and never change. Nothing
// in this kernel moves an execution to another CPU, so there is nothing for `pin` to stop. `irq_save` masks all
// interrupts and `irq_restore` undoes it. Each number has its own slot.
unsafe impl Platform for Kernel {
    const CPUS: usize = cpu::MAX;

    fn current_cpu() -> usize {
        cpu::id()
    }

    fn pin() {}

    fn unpin() {}

    fn irq_save() -> usize {
        cpu::irq_save() as usize
    }

    fn irq_restore(state: usize) {
        cpu::irq_restore(state as u64);
    }

    fn slot(cpu: usize) -> &'static CpuSlot {
        &SLOTS[cpu]
    }

    fn relax() {
        lock::relax();
    }

    fn stuck(cpu: usize, turns: u64) {
        // Nothing here stops a CPU for that long: say so, rather than hang.
        assert!(turns < 64 * STUCK_AFTER, "CPU {cpu} does not answer");
    }
}

/// What the flusher is initialized with: the root for CPUs that have no space loaded, and the size of pages.
pub fn config() -> Config {
    Config::new(Paging::arm64(Granule::Size4K), boot::reserved_root())
}
