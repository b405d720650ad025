//! Which instruction a CPU refused.

/// An instruction that is emulated. Both are [`LENGTH`](Self::LENGTH) bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Posts an invalidation to all CPUs: `0F 01 FE`.
    Invlpgb,
    /// Waits for those this CPU has posted: `0F 01 FF`.
    Tlbsync,
}

impl Instruction {
    /// Bytes of either instruction.
    pub const LENGTH: usize = 3;

    /// The instruction with these first bytes, if it is one of the two. With a prefix the same bytes mean others
    /// (`F2 0F 01 FF` is PVALIDATE), so there must be none.
    #[must_use]
    pub const fn decode(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        match bytes {
            [0x0f, 0x01, 0xfe] => Some(Self::Invlpgb),
            [0x0f, 0x01, 0xff] => Some(Self::Tlbsync),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Instruction;

    #[test]
    fn two_of_all_opcodes() {
        let mut found = 0;
        for opcode in 0..1_u32 << 24 {
            let [first, second, third, _] = opcode.to_le_bytes();
            found += u32::from(Instruction::decode([first, second, third]).is_some());
        }
        assert_eq!(found, 2);
        assert_eq!(
            Instruction::decode([0x0f, 0x01, 0xfe]),
            Some(Instruction::Invlpgb)
        );
        assert_eq!(
            Instruction::decode([0x0f, 0x01, 0xff]),
            Some(Instruction::Tlbsync)
        );
    }
}
