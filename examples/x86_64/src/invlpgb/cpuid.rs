//! Whether the CPU has the instructions, and what it claims where it has not.

use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use raw_cpuid::{CpuId, CpuIdResult, native_cpuid::cpuid_count};
use shootdown::x86_64::{Features, detect};

/// The most pages beyond the first that an emulated INVLPGB takes: as on the first CPUs that had it.
pub(super) const EXTRA_PAGES: u16 = 7;

static EMULATED: AtomicBool = AtomicBool::new(false);

/// Decides, once, on the boot CPU, before the flusher is initialized: emulates what the CPU lacks.
pub fn start() {
    let cpuid = CpuId::new();
    let pcid = cpuid.get_feature_info().is_some_and(|f| f.has_pcid());
    let invlpgb = cpuid
        .get_processor_capacity_feature_info()
        .is_some_and(|f| f.has_invlpgb());
    EMULATED.store(!(pcid && invlpgb), Release);
}

/// Whether the CPU lacks the instructions.
#[must_use]
pub fn is_emulated() -> bool {
    EMULATED.load(Acquire)
}

/// What this CPU offers, emulated instructions included.
#[must_use]
pub fn features() -> Features {
    let real = detect();
    if !is_emulated() {
        return real;
    }
    Features {
        la57_enabled: real.la57_enabled,
        ..Features::from_cpuid(&CpuId::with_cpuid_reader(claim))
    }
}

/// CPUID as a CPU with PCIDs and INVLPGB gives it.
fn claim(leaf: u32, sub: u32) -> CpuIdResult {
    const PCID: u32 = 1 << 17;
    const INVLPGB: u32 = 1 << 3;
    const CAPACITY: u32 = 0x8000_0008;
    let mut result = cpuid_count(leaf, sub);
    match leaf {
        1 => result.ecx |= PCID,
        // It would need PCIDs that are real.
        7 if sub == 0 => result.ebx &= !(1 << 10),
        0x8000_0000 => result.eax = result.eax.max(CAPACITY),
        CAPACITY => {
            result.ebx |= INVLPGB;
            result.edx = result.edx & !0xffff | u32::from(EXTRA_PAGES);
        }
        _ => {}
    }
    result
}
