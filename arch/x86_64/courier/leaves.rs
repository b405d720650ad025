//! The CPUID leaves of hypervisors.

use raw_cpuid::CpuIdReader;

/// The leaves of the first hypervisor interface for which `is_it` says so, given its base leaf. A hypervisor that offers
/// several interfaces puts each at another multiple of 0x100 (Linux, arch/x86/include/asm/cpuid/api.h; KVM with
/// Hyper-V's interface has its own at 0x4000_0100).
pub(super) fn find<R: CpuIdReader>(cpuid: &R, is_it: impl Fn(u32) -> bool) -> Option<u32> {
    const HYPERVISOR: u32 = 1 << 31;
    // Without a hypervisor these leaves answer with whatever the highest basic leaf has.
    if cpuid.cpuid1(1).ecx & HYPERVISOR == 0 {
        return None;
    }
    (0x4000_0000..0x4001_0000)
        .step_by(0x100)
        .find(|base| is_it(*base))
}
