//! The pages of the models.

use shootdown::{Paging, Range, Request, Stride};

/// The pages: three of space A and one of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    X,
    Y,
    Z,
    Kernel,
}

/// Those of the space.
pub const USER_PAGES: [Page; 3] = [Page::X, Page::Y, Page::Z];
/// How many there are.
pub const PAGES: usize = 4;
impl Page {
    const fn address(self) -> u64 {
        match self {
            Self::Kernel => 0xffff_8000_0000_0000,
            user => (user as u64 + 1) << 12,
        }
    }

    /// The page at `address`, if there is one.
    pub fn at(address: u64) -> Option<Self> {
        [Self::X, Self::Y, Self::Z, Self::Kernel]
            .into_iter()
            .find(|page| page.address() == address)
    }

    /// The range of this page.
    pub fn range(self) -> Range {
        Range::new(Paging::X86_4_LEVEL, self.address(), 1, Stride::Size4K).unwrap()
    }

    /// The request to flush this page.
    pub fn request(self) -> Request {
        Request::range(self.range())
    }
}
