//! The CPUID leaves that say which hypervisor there is.

/// EAX, EBX, ECX and EDX.
pub type Leaf = [u32; 4];

/// Leaf 1, ECX: there is a hypervisor.
pub const HYPERVISOR: u32 = 1 << 31;

/// KVM's leaves start here, as they do where Hyper-V's come first.
const KVM: u32 = 0x4000_0100;
const STEAL_TIME: u32 = 1 << 5;
const FLUSH_ON_ENTRY: u32 = 1 << 9;

/// What KVM with steal time and flush on entry says, if `leaf` is one of its leaves.
#[must_use]
pub fn kvm(leaf: u32) -> Option<Leaf> {
    match leaf {
        KVM => Some([KVM + 1, word(b"KVMK"), word(b"VMKV"), word(b"M\0\0\0")]),
        0x4000_0101 => Some([STEAL_TIME | FLUSH_ON_ENTRY, 0, 0, 0]),
        _ => None,
    }
}

const HYPERV: u32 = 0x4000_0000;
const ACCESS_HYPERCALLS: u32 = 1 << 5;
const ACCESS_VP_INDEX: u32 = 1 << 6;
const REMOTE_FLUSH: u32 = 1 << 2;
const PROCESSOR_SETS: u32 = 1 << 11;

/// What Hyper-V with flush hypercalls of both kinds says, if `leaf` is one of its leaves.
#[must_use]
pub fn hyperv(leaf: u32) -> Option<Leaf> {
    match leaf {
        HYPERV => Some([HYPERV + 6, word(b"Micr"), word(b"osof"), word(b"t Hv")]),
        0x4000_0001 => Some([word(b"Hv#1"), 0, 0, 0]),
        0x4000_0003 => Some([ACCESS_HYPERCALLS | ACCESS_VP_INDEX, 0, 0, 0]),
        0x4000_0004 => Some([REMOTE_FLUSH | PROCESSOR_SETS, 0, 0, 0]),
        0x4000_0002..=0x4000_0006 => Some([0; 4]),
        _ => None,
    }
}

const fn word(text: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*text)
}

#[cfg(test)]
mod tests {
    use super::{hyperv, kvm};

    #[test]
    fn each_is_found_where_it_should_be() {
        // As recorded under KVM, whose leaves had moved up, and with its Hyper-V interface.
        assert_eq!(kvm(0x4000_0100).unwrap()[1], 0x4b4d_564b);
        assert_eq!(hyperv(0x4000_0001).unwrap()[0], 0x3123_7648);
        assert_eq!(kvm(0x4000_0000), None);
        assert_eq!(hyperv(0x4000_0100), None);
    }
}
