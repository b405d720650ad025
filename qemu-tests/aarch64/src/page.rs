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

/// A space with a page.
#[derive(Debug)]
pub struct SpacePage {
    /// The space.
    pub space: Space,
    tables: Tables,
    va: u64,
}

impl SpacePage {
    /// Makes the space and maps its page, `place` pages from the start of the window.
    ///
    /// # Panics
    /// When the flusher is not initialized.
    #[must_use]
    pub fn mapped(place: u64) -> Self {
        let tables = Tables::of_space().expect("the pool is full at start");
        let space = TLB.space(tables.root()).expect("there are few spaces");
        let va = WINDOW.start + place * Size::Page.bytes();
        let mut page = Self { space, tables, va };
        page.map();
        page
    }

    /// Maps the page, which is unmapped.
    ///
    /// # Panics
    /// When it is mapped.
    pub fn map(&mut self) {
        let mapped = self.tables.map(self.va, frame(), Access::ReadWrite);
        mapped.expect("it is unmapped");
        TLB.mapped(&self.range());
    }

    /// Clears the page's entry, without a flush.
    ///
    /// # Panics
    /// When it is unmapped.
    pub fn unmap(&mut self) -> Frame {
        self.tables
            .unmap(self.va, Size::Page)
            .expect("it is mapped")
    }

    /// The page.
    #[must_use]
    pub fn range(&self) -> Range {
        page_at(self.va)
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
        probe::read(self.va).is_ok()
    }
}

/// A page of the kernel.
#[derive(Debug)]
pub struct KernelPage {
    va: u64,
}

impl KernelPage {
    /// Maps the page, `place` pages from the start of the kernel's window.
    #[must_use]
    pub fn mapped(place: u64) -> Self {
        let mut page = Self {
            va: KERNEL_WINDOW.start + place * Size::Page.bytes(),
        };
        page.map();
        page
    }

    /// Maps the page, which is unmapped.
    ///
    /// # Panics
    /// When it is mapped.
    pub fn map(&mut self) {
        let mapped = with_kernel_tables(|tables| tables.map(self.va, frame(), Access::ReadWrite));
        mapped.expect("it is unmapped");
        TLB.mapped(&self.range());
    }

    /// Clears the page's entry, without a flush.
    ///
    /// # Panics
    /// When it is unmapped.
    pub fn unmap(&mut self) -> Frame {
        with_kernel_tables(|tables| tables.unmap(self.va, Size::Page)).expect("it is mapped")
    }

    /// The page.
    #[must_use]
    pub fn range(&self) -> Range {
        page_at(self.va)
    }

    /// Whether this CPU can read the page.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        probe::read(self.va).is_ok()
    }
}
