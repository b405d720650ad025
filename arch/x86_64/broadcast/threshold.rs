//! How many CPUs must run a space before it gets a global PCID.

/// `base`, doubled each time that the PCIDs which are still available have halved. See
/// [`Config::broadcast_above`](super::super::Config::broadcast_above) for the table.
pub(super) const fn threshold(base: u64, available: u64, total: u64) -> u64 {
    if available == 0 {
        return u64::MAX;
    }
    // At most 12 doublings of at most 4096.
    base << (total / available).ilog2()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_documented_table() {
        let table = [
            (4088, 3),
            (2045, 3),
            (2044, 6),
            (1023, 6),
            (1022, 12),
            (511, 24),
            (255, 48),
            (127, 96),
            (63, 192),
            (31, 384),
            (1, 3 << 11),
            (0, u64::MAX),
        ];
        for (available, expected) in table {
            assert_eq!(threshold(3, available, 4088), expected, "{available} left");
        }
    }

    #[test]
    fn it_never_falls_as_pcids_run_out() {
        for total in [1, 4, 100, 4088] {
            let mut last = 0;
            for available in (0..=total).rev() {
                let now = threshold(1, available, total);
                assert!(now >= last);
                last = now;
            }
        }
        assert_eq!(threshold(3, 0, 0), u64::MAX);
    }
}
