//! Virtual address ranges: what a flush can name.

use core::fmt;

use crate::paging::{Paging, Stride};

/// Why a range can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum RangeError {
    /// The start is not a multiple of the stride.
    Unaligned,
    /// No pages.
    Empty,
    /// The end lies beyond the top of the address space.
    Wraps,
    /// The range touches the hole between the low and the high half.
    NonCanonical,
    /// The regime's granule has no leaf of this size.
    WrongStride,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unaligned => "the start of the range is not a multiple of its stride",
            Self::Empty => "the range has no pages",
            Self::Wraps => "the range goes beyond the top of the address space",
            Self::NonCanonical => "the range touches the hole between the low and the high half",
            Self::WrongStride => "this granule has no leaf of the given stride",
        })
    }
}

impl core::error::Error for RangeError {}

/// A range of virtual addresses: a start, a number of pages and their [`Stride`]. Never empty, aligned, and in one
/// half of the address space.
///
/// ```
/// use shootdown::{Paging, Range, RangeError, Stride};
///
/// let range = Range::new(Paging::X86_4_LEVEL, 0x40_0000, 3, Stride::Size4K)?;
/// assert_eq!(range.bytes(), 0x3000);
/// let hole = Range::new(Paging::X86_4_LEVEL, 0x7fff_ffff_f000, 2, Stride::Size4K);
/// assert_eq!(hole, Err(RangeError::NonCanonical));
/// # Ok::<(), RangeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Range {
    start: u64,
    pages: u64,
    stride: Stride,
}

impl Range {
    /// The range of `pages` pages of `stride` from the address `start`.
    ///
    /// # Errors
    ///
    /// Says what is wrong, see [`RangeError`]. A range may end exactly at the top of the address space.
    pub const fn new(
        paging: Paging,
        start: u64,
        pages: u64,
        stride: Stride,
    ) -> Result<Self, RangeError> {
        if !stride.fits(paging.granule()) {
            return Err(RangeError::WrongStride);
        }
        if !start.is_multiple_of(stride.bytes()) {
            return Err(RangeError::Unaligned);
        }
        if pages == 0 {
            return Err(RangeError::Empty);
        }
        let Some(bytes_but_one_page) = (pages - 1).checked_mul(stride.bytes()) else {
            return Err(RangeError::Wraps);
        };
        let Some(last_page) = start.checked_add(bytes_but_one_page) else {
            return Err(RangeError::Wraps);
        };
        // The last byte can't overflow: the last page is aligned.
        let last = last_page + (stride.bytes() - 1);
        if !paging.contains(start)
            || !paging.contains(last)
            || paging.is_high(start) != paging.is_high(last)
        {
            return Err(RangeError::NonCanonical);
        }
        Ok(Self {
            start,
            pages,
            stride,
        })
    }

    /// The first address.
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// The number of pages of the stride.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// The stride.
    pub const fn stride(&self) -> Stride {
        self.stride
    }

    /// The length in bytes.
    pub const fn bytes(&self) -> u64 {
        self.pages << self.stride as u8
    }

    /// The last address of the range.
    pub const fn last(&self) -> u64 {
        self.start + ((self.pages - 1) << self.stride as u8) + (self.stride.bytes() - 1)
    }

    /// The first address of each page.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + use<> {
        let (start, shift) = (self.start, self.stride as u8);
        Pages {
            start,
            shift,
            next: 0,
            end: self.pages,
        }
    }

    /// The smallest range that holds both, with the smaller stride. `None` if they lie in different halves.
    pub(crate) fn union(&self, other: &Self, paging: Paging) -> Option<Self> {
        let stride = self.stride.min(other.stride);
        let start = self.start.min(other.start);
        let last = self.last().max(other.last());
        let pages = (last - start) / stride.bytes() + 1;
        Self::new(paging, start, pages, stride).ok()
    }
}

struct Pages {
    start: u64,
    shift: u8,
    next: u64,
    end: u64,
}

impl Iterator for Pages {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        (self.next < self.end).then(|| {
            let addr = self.start + (self.next << self.shift);
            self.next += 1;
            addr
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Pages {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::paging::Granule;

    const X86: Paging = Paging::X86_4_LEVEL;

    #[test]
    fn bad_ranges_are_named() {
        let new = |start, pages, stride| Range::new(X86, start, pages, stride);
        assert_eq!(new(1, 1, Stride::Size4K), Err(RangeError::Unaligned));
        assert_eq!(new(0x1000, 1, Stride::Size2M), Err(RangeError::Unaligned));
        assert_eq!(new(0x1000, 0, Stride::Size4K), Err(RangeError::Empty));
        assert_eq!(
            new(0xffff_ffff_ffff_f000, 2, Stride::Size4K),
            Err(RangeError::Wraps)
        );
        assert_eq!(
            new(0x1000, u64::MAX, Stride::Size4K),
            Err(RangeError::Wraps)
        );
        assert_eq!(
            new(0x8000_0000_0000, 1, Stride::Size4K),
            Err(RangeError::NonCanonical)
        );
        // Both ends canonical, but the hole between them.
        assert_eq!(
            new(0x1000, (u64::MAX << 47) / 0x1000, Stride::Size4K),
            Err(RangeError::NonCanonical)
        );
        assert_eq!(new(0, 1, Stride::Size16K), Err(RangeError::WrongStride));
        let arm = Paging::arm64(Granule::Size16K);
        assert_eq!(
            Range::new(arm, 0, 1, Stride::Size4K),
            Err(RangeError::WrongStride)
        );
    }

    #[test]
    fn the_edges_of_the_halves_are_fine() {
        assert!(Range::new(X86, 0x7fff_ffff_f000, 1, Stride::Size4K).is_ok());
        assert!(Range::new(X86, 0xffff_8000_0000_0000, 1, Stride::Size1G).is_ok());
        let top = Range::new(X86, 0xffff_ffff_ffff_f000, 1, Stride::Size4K).unwrap();
        assert_eq!(top.last(), u64::MAX);
        let arm = Paging::arm64(Granule::Size64K);
        assert!(Range::new(arm, 0xffff_ffff_0000, 1, Stride::Size64K).is_ok());
        let la57 = Paging::X86_5_LEVEL;
        assert!(Range::new(la57, 0x8000_0000_0000, 1, Stride::Size4K).is_ok());
    }

    #[test]
    fn union_has_the_smaller_stride_and_holds_both() {
        let large = Range::new(X86, 0x20_0000, 1, Stride::Size2M).unwrap();
        let small = Range::new(X86, 0x80_3000, 2, Stride::Size4K).unwrap();
        let both = large.union(&small, X86).unwrap();
        assert_eq!((both.start(), both.last()), (0x20_0000, 0x80_4fff));
        assert_eq!(both.stride(), Stride::Size4K);
        let high = Range::new(X86, 0xffff_8000_0000_0000, 1, Stride::Size4K).unwrap();
        assert_eq!(large.union(&high, X86), None);
    }

    #[test]
    fn pages_are_counted_from_the_start() {
        let range = Range::new(X86, 0x40_0000, 3, Stride::Size2M).unwrap();
        let mut pages = range.iter();
        assert_eq!(pages.len(), 3);
        assert_eq!(pages.next(), Some(0x40_0000));
        assert_eq!(pages.last(), Some(0x80_0000));
    }
}
