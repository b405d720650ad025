//! Ranges from the x86_64 crate's pages.

use x86_64::structures::paging::{
    Page, PageSize,
    page::{PageRange, PageRangeInclusive},
};

use crate::paging::{Paging, Stride};
use crate::range::{Range, RangeError};

fn stride(bytes: u64) -> Result<Stride, RangeError> {
    [Stride::Size4K, Stride::Size2M, Stride::Size1G]
        .into_iter()
        .find(|stride| stride.bytes() == bytes)
        .ok_or(RangeError::WrongStride)
}

/// The crate's addresses have 48 bits.
fn range<S: PageSize>(start: Page<S>, pages: u64) -> Result<Range, RangeError> {
    let start = start.start_address().as_u64();
    Range::new(Paging::X86_4_LEVEL, start, pages, stride(S::SIZE)?)
}

impl<S: PageSize> TryFrom<Page<S>> for Range {
    type Error = RangeError;

    /// One page.
    ///
    /// ```
    /// use shootdown::{Range, Stride};
    /// use x86_64::{VirtAddr, structures::paging::{Page, Size2MiB}};
    ///
    /// let page = Page::<Size2MiB>::containing_address(VirtAddr::new(0x40_0000));
    /// let range = Range::try_from(page)?;
    /// assert_eq!((range.start(), range.stride()), (0x40_0000, Stride::Size2M));
    /// # Ok::<(), shootdown::RangeError>(())
    /// ```
    fn try_from(page: Page<S>) -> Result<Self, RangeError> {
        range(page, 1)
    }
}

impl<S: PageSize> TryFrom<PageRange<S>> for Range {
    type Error = RangeError;

    fn try_from(pages: PageRange<S>) -> Result<Self, RangeError> {
        let bytes = (pages.end.start_address().as_u64())
            .checked_sub(pages.start.start_address().as_u64())
            .ok_or(RangeError::Empty)?;
        range(pages.start, bytes / S::SIZE)
    }
}

impl<S: PageSize> TryFrom<PageRangeInclusive<S>> for Range {
    type Error = RangeError;

    fn try_from(pages: PageRangeInclusive<S>) -> Result<Self, RangeError> {
        let bytes = (pages.end.start_address().as_u64())
            .checked_sub(pages.start.start_address().as_u64())
            .ok_or(RangeError::Empty)?;
        range(pages.start, bytes / S::SIZE + 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use x86_64::{VirtAddr, structures::paging::Size4KiB};

    use super::*;

    fn page(addr: u64) -> Page<Size4KiB> {
        Page::containing_address(VirtAddr::new(addr))
    }

    #[test]
    fn exclusive_and_inclusive_ends() {
        let (first, last) = (page(0x1000), page(0x3000));
        let exclusive = Range::try_from(Page::range(first, last)).unwrap();
        assert_eq!((exclusive.pages(), exclusive.last()), (2, 0x2fff));
        let inclusive = Range::try_from(Page::range_inclusive(first, last)).unwrap();
        assert_eq!((inclusive.pages(), inclusive.last()), (3, 0x3fff));
        let empty = Range::try_from(Page::range(last, last));
        assert_eq!(empty, Err(RangeError::Empty));
        let top = page(0xffff_ffff_ffff_f000);
        let inclusive = Range::try_from(Page::range_inclusive(top, top)).unwrap();
        assert_eq!(inclusive.last(), u64::MAX);
    }

    #[test]
    fn a_range_over_the_hole_is_refused() {
        let over = Page::range_inclusive(page(0x7fff_ffff_f000), page(0xffff_8000_0000_0000));
        assert_eq!(Range::try_from(over), Err(RangeError::NonCanonical));
    }
}
