//! The few pages that scenarios use, and where they stand in the page tables.
//!
//! Tables have four entries, of which each serves the index that is congruent to it. Each 2 MiB region has two pages at
//! its start and two at its end, so that neighbouring regions have neighbouring pages across a table boundary.

/// Entries of a table.
pub(crate) const ENTRIES: usize = 4;
/// Pages of a region.
pub(crate) const PAGES_OF_REGION: u8 = 4;
/// 2 MiB regions of user memory.
pub(crate) const USER_REGIONS: u8 = 4;
/// 2 MiB regions of kernel memory.
pub(crate) const KERNEL_REGIONS: u8 = 2;
/// Pages of user memory.
pub(crate) const USER_PAGES: u8 = USER_REGIONS * PAGES_OF_REGION;
/// Pages of user and kernel memory.
pub(crate) const PAGES: u8 = USER_PAGES + KERNEL_REGIONS * PAGES_OF_REGION;
/// Regions of user and kernel memory.
pub(crate) const REGIONS: u8 = USER_REGIONS + KERNEL_REGIONS;

const USER_BASE: u64 = 0;
const KERNEL_BASE: u64 = 0xffff_ffff_c000_0000;
const PAGE: u64 = 1 << 12;
pub(crate) const REGION_BYTES: u64 = 1 << 21;

/// The region of a page.
pub(crate) const fn region_of(page: u8) -> u8 {
    page / PAGES_OF_REGION
}

/// Whether a page is the kernel's.
pub(crate) const fn is_kernel(page: u8) -> bool {
    page >= USER_PAGES
}

/// The first address of a region.
pub(crate) const fn region_address(region: u8) -> u64 {
    if region < USER_REGIONS {
        USER_BASE + region as u64 * REGION_BYTES
    } else {
        KERNEL_BASE + (region - USER_REGIONS) as u64 * REGION_BYTES
    }
}

/// The address of a page.
pub(crate) const fn address(page: u8) -> u64 {
    let within = page % PAGES_OF_REGION;
    let offset = match within {
        0 | 1 => within as u64 * PAGE,
        _ => REGION_BYTES - (4 - within as u64) * PAGE,
    };
    region_address(region_of(page)) + offset
}

/// The table entry that serves `address` at `level`: 0 for pages, 1 for regions, 2 for the root.
pub(crate) const fn entry_of(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize % ENTRIES
}

/// The bytes that an entry of `level` serves.
pub(crate) const fn entry_bytes(level: u32) -> u64 {
    PAGE << (9 * level)
}

/// The pages between two addresses, the last one included, as a mask.
pub(crate) fn pages_between(first: u64, last: u64) -> u32 {
    (0..PAGES)
        .filter(|page| (first..=last).contains(&address(*page)))
        .map(|page| 1 << page)
        .sum()
}

/// The regions that a mask of pages touches, as a mask.
pub(crate) fn regions_of(pages: u32) -> u8 {
    (0..REGIONS)
        .filter(|region| pages >> (region * PAGES_OF_REGION) & 0xf != 0)
        .map(|region| 1 << region)
        .sum()
}

/// All pages of user or kernel memory.
pub(crate) const fn all_pages(kernel: bool) -> u32 {
    let user = (1 << USER_PAGES) - 1;
    if kernel {
        ((1 << PAGES) - 1) & !user
    } else {
        user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_entries_of_their_own() {
        for page in 0..PAGES {
            assert_eq!(entry_of(address(page), 0), usize::from(page % 4));
            assert_eq!(entry_of(address(page), 1), usize::from(region_of(page) % 4));
            assert_eq!(
                entry_of(address(page), 2),
                if is_kernel(page) { 3 } else { 0 }
            );
        }
    }

    #[test]
    fn regions_meet() {
        assert_eq!(address(3) + PAGE, address(4));
        assert_eq!(pages_between(address(2), address(5) + PAGE - 1), 0b11_1100);
        assert_eq!(regions_of(0b11_1100), 0b11);
    }
}
