//! The words that frames hold, so that any read says what it came from.

/// What every word of a free frame holds. Not a valid page-table entry on any architecture: bit 0 is clear.
pub const POISON: u64 = 0xF4EE_F4EE_F4EE_F4EE;

const TAG: u64 = 0x5A5A << 48;
const TAG_MASK: u64 = 0xFFFF << 48;

/// The word that a page holds in its life number `epoch`. Epochs are never reused, so tags never repeat.
///
/// # Panics
/// When `epoch` does not fit in 48 bits.
#[must_use]
pub const fn tag(epoch: u64) -> u64 {
    assert!(epoch & TAG_MASK == 0, "out of epochs");
    TAG | epoch
}

/// The epoch of a [`tag`].
#[must_use]
pub const fn epoch(tag: u64) -> u64 {
    tag & !TAG_MASK
}

/// Whether `value` is something a data frame may hold. Anything else means that a stale access left the data pool.
#[must_use]
pub const fn is_confined(value: u64) -> bool {
    value == POISON || value & TAG_MASK == TAG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_confined_and_differ() {
        assert!(is_confined(tag(0)) && is_confined(tag((1 << 48) - 1)) && is_confined(POISON));
        assert_ne!(tag(1), tag(2));
        assert_eq!(epoch(tag(99)), 99);
        assert!(!is_confined(0) && !is_confined(!0));
    }

    #[test]
    #[should_panic(expected = "out of epochs")]
    fn an_epoch_has_48_bits() {
        let _ = tag(1 << 48);
    }
}
