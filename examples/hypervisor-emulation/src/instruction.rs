//! The instructions with which a guest calls its hypervisor.

/// Bytes of either instruction.
pub const LENGTH: usize = 3;

/// Whether these bytes are VMCALL (`0F 01 C1`, Intel) or VMMCALL (`0F 01 D9`, AMD).
#[must_use]
pub const fn is_hypercall(bytes: [u8; LENGTH]) -> bool {
    matches!(bytes, [0x0f, 0x01, 0xc1 | 0xd9])
}

/// What a hypervisor puts into the hypercall page: VMMCALL and RET.
pub const PAGE_CODE: [u8; LENGTH + 1] = [0x0f, 0x01, 0xd9, 0xc3];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_all_opcodes() {
        let found = (0..1_u32 << 24).filter(|opcode| {
            let [first, second, third, _] = opcode.to_le_bytes();
            is_hypercall([first, second, third])
        });
        assert_eq!(found.count(), 2);
        assert!(is_hypercall([PAGE_CODE[0], PAGE_CODE[1], PAGE_CODE[2]]));
    }
}
