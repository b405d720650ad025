//! One page, of a space or of the kernel.

use shootdown::{Range, Space, Stride, TlbFlusher};
use shootdown_examples_aarch64::frames::{Frame, Size};
use shootdown_examples_aarch64::paging::{
    Access, KERNEL_WINDOW, Tables, WINDOW, with_kernel_tables,
};
use shootdown_examples_aarch64::probe;

use crate::rig::TLB;

fn page_at(start: u64) -> Range {
    Range::new(TLB.paging(), start, 1, Stride::Size4K).expect("windows are aligned")
}

fn frame() -> Frame {
    Frame::data(Size::Page).expect("the pool is full at start")
}

/// A space with a page at the start of the window.
#[derive(Debug)]
pub struct SpacePage {
    /// The space.
    pub space: Space,
    tables: Tables,
}

impl SpacePage {
    /// Makes the space and maps its page.
    ///
    /// # Panics
    /// When the flusher is not initialized.
    #[must_use]
    pub fn mapped() -> Self {
        let tables = Tables::of_space().expect("the pool is full at start");
        let space = TLB.space(tables.root()).expect("there are few spaces");
        let mut page = Self { space, tables };
        page.map();
        page
    }

    /// Maps the page, which is unmapped.
    ///
    /// # Panics
    /// When it is mapped.
    pub fn map(&mut self) {
        let mapped = self.tables.map(WINDOW.start, frame(), Access::ReadWrite);
        mapped.expect("it is unmapped");
        TLB.mapped(&self.range());
    }

    /// Clears the page's entry, without a flush.
    ///
    /// # Panics
    /// When it is unmapped.
    pub fn unmap(&mut self) -> Frame {
        self.tables
            .unmap(WINDOW.start, Size::Page)
            .expect("it is mapped")
    }

    /// The page.
    #[must_use]
    pub fn range(&self) -> Range {
        page_at(WINDOW.start)
    }

    /// Ends the space. Until then it stays where it is.
    ///
    /// # Panics
    /// When a CPU has it loaded.
    pub fn retire(&self) {
        TLB.retire(&self.space).expect("no CPU has it loaded");
    }

    /// Whether this CPU, which has the space loaded, can read the page.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        probe::read(WINDOW.start).is_ok()
    }
}

/// A page at the start of the kernel's window.
#[derive(Debug)]
pub struct KernelPage(());

impl KernelPage {
    /// Maps the page.
    #[must_use]
    pub fn mapped() -> Self {
        let mut page = Self(());
        page.map();
        page
    }

    /// Maps the page, which is unmapped.
    ///
    /// # Panics
    /// When it is mapped.
    pub fn map(&mut self) {
        let mapped = with_kernel_tables(|tables| {
            tables.map(KERNEL_WINDOW.start, frame(), Access::ReadWrite)
        });
        mapped.expect("it is unmapped");
        TLB.mapped(&self.range());
    }

    /// Clears the page's entry, without a flush.
    ///
    /// # Panics
    /// When it is unmapped.
    pub fn unmap(&mut self) -> Frame {
        with_kernel_tables(|tables| tables.unmap(KERNEL_WINDOW.start, Size::Page))
            .expect("it is mapped")
    }

    /// The page.
    #[must_use]
    pub fn range(&self) -> Range {
        page_at(KERNEL_WINDOW.start)
    }

    /// Whether this CPU can read the page.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        probe::read(KERNEL_WINDOW.start).is_ok()
    }
}
