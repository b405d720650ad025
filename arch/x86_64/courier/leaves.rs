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

/// Recorded leaves, for tests.
#[cfg(all(test, not(loom)))]
pub(super) mod recorded {
    use raw_cpuid::{CpuIdReader, CpuIdResult};

    /// A leaf, and EAX, EBX, ECX and EDX; a leaf that is not listed is zero.
    #[derive(Clone, Copy)]
    pub(in crate::x86_64::courier) struct Leaves(
        pub(in crate::x86_64::courier) &'static [(u32, [u32; 4])],
    );

    impl CpuIdReader for Leaves {
        fn cpuid2(&self, leaf: u32, _: u32) -> CpuIdResult {
            let found = self.0.iter().find(|(listed, _)| *listed == leaf);
            let [eax, ebx, ecx, edx] = found.map_or([0; 4], |(_, registers)| *registers);
            CpuIdResult { eax, ebx, ecx, edx }
        }
    }

    const GUEST: (u32, [u32; 4]) = (1, [0x0083_0f10, 0, 0x8000_0000, 0]);
    const KVM: [u32; 3] = [0x4b4d_564b, 0x564b_4d56, 0x4d];
    const MICROSOFT: [u32; 3] = [0x7263_694d, 0x666f_736f, 0x7648_2074];

    /// A guest of KVM.
    pub(in crate::x86_64::courier) const PLAIN_KVM: Leaves = Leaves(&[
        GUEST,
        (0x4000_0000, [0x4000_0001, KVM[0], KVM[1], KVM[2]]),
        (0x4000_0001, [0x0100_7afb, 0, 0, 0]),
    ]);

    /// A guest of KVM with Hyper-V's interface in front.
    pub(in crate::x86_64::courier) const KVM_BEHIND_HYPER_V: Leaves = Leaves(&[
        GUEST,
        (
            0x4000_0000,
            [0x4000_0005, MICROSOFT[0], MICROSOFT[1], MICROSOFT[2]],
        ),
        (0x4000_0001, [0x3123_7648, 0, 0, 0]),
        (0x4000_0003, [0x0000_027e, 0, 0, 0]),
        (0x4000_0004, [0x0000_0c24, 0xfff, 0, 0]),
        (0x4000_0100, [0x4000_0101, KVM[0], KVM[1], KVM[2]]),
        (0x4000_0101, [0x0100_7afb, 0, 0, 1]),
    ]);

    /// The same leaves where no hypervisor is.
    pub(in crate::x86_64::courier) const BARE_METAL: Leaves = Leaves(&[
        (1, [0x0083_0f10, 0, 0, 0]),
        (0x4000_0000, [0x4000_0001, KVM[0], KVM[1], KVM[2]]),
        (0x4000_0001, [0x3123_7648, 0, 0, 0]),
    ]);
}
