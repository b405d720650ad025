//! Sets of virtual processors.

/// Virtual processors by their index, which is below 4096: bit `n` of word `b` is processor `64 * b + n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors(pub(crate) [u64; 64]);

impl Processors {
    /// All there are.
    pub const ALL: Self = Self([u64::MAX; 64]);

    /// Whether `index` is in the set.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        let bank = self.0.get(index as usize / 64);
        bank.is_some_and(|bank| bank & 1 << (index % 64) != 0)
    }

    /// Those of a mask.
    pub(crate) const fn of_mask(mask: u64) -> Self {
        let mut banks = [0; 64];
        banks[0] = mask;
        Self(banks)
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
            assert_eq!(Processors::ALL.contains(index), index < 4096);
        }
    }
}
