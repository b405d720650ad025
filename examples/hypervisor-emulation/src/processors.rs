//! Sets of virtual processors.

/// Virtual processors by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processors {
    /// All there are.
    All,
    /// Those whose bit is set: bit `n` of word `b` is processor `64 * b + n`.
    Some([u64; 64]),
}

impl Processors {
    /// Whether `index` is in the set.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        match self {
            Self::All => true,
            Self::Some(banks) => banks
                .get(index as usize / 64)
                .is_some_and(|bank| bank & 1 << (index % 64) != 0),
        }
    }

    /// Those of a mask.
    pub(crate) const fn of_mask(mask: u64) -> Self {
        let mut banks = [0; 64];
        banks[0] = mask;
        Self::Some(banks)
    }
}

#[cfg(test)]
mod tests {
    use super::Processors;

    #[test]
    fn a_mask_is_the_first_bank() {
        let set = Processors::of_mask(1 << 63 | 1 << 2);
        for index in 0..5000 {
            assert_eq!(set.contains(index), index == 2 || index == 63, "{index}");
            assert!(Processors::All.contains(index));
        }
    }
}
