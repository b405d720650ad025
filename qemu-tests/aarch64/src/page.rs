//! One page, of a space or of the kernel.

use core::marker::PhantomData;

use shootdown::{Range, Space, Stride};
use shootdown_examples_aarch64::frames::{Frame, Size};
use shootdown_examples_aarch64::paging::{
    Access, KERNEL_WINDOW, Tables, WINDOW, with_kernel_tables,
};
use shootdown_examples_aarch64::probe;

use crate::backend::Backend;

fn page_at<B: Backend>(start: u64) -> Range {
    Range::new(B::TLB.paging(), start, 1, Stride::Size4K).expect("windows are aligned")
}

fn frame() -> Frame {
    Frame::data(Size::Page).expect("the pool is full at start")
}

/// A space with a page.
#[derive(Debug)]
pub struct SpacePage<B> {
    /// The space.
    pub space: Space,
    tables: Tables,
    va: u64,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend> SpacePage<B> {
    /// Makes the space and maps its page, `place` pages from the start of the window.
    ///
    /// # Panics
    /// When the flusher is not initialized.
    #[must_use]
    pub fn mapped(place: u64) -> Self {
        let tables = Tables::of_space().expect("the pool is full at start");
        let space = B::TLB.space(tables.root()).expect("there are few spaces");
        let va = WINDOW.start + place * Size::Page.bytes();
        let mut page = Self {
            space,
            tables,
            va,
            backend: PhantomData,
        };
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
        B::TLB.mapped(&self.range());
    }

    /// Maps the page, which is unmapped, to a frame whose words are all `tag`.
    ///
    /// # Panics
    /// When it is mapped.
    pub fn map_tagged(&mut self, tag: u64) {
        let frame = frame();
        frame.fill(tag);
        let mapped = self.tables.map(self.va, frame, Access::ReadWrite);
        mapped.expect("it is unmapped");
        B::TLB.mapped(&self.range());
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
        page_at::<B>(self.va)
    }

    /// Ends the space. Until then it stays where it is.
    ///
    /// # Panics
    /// When a CPU has it loaded.
    pub fn retire(&self) {
        B::TLB.retire(&self.space).expect("no CPU has it loaded");
    }

    /// Whether this CPU, which has the space loaded, can read the page.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.read().is_some()
    }

    /// What this CPU, which has the space loaded, reads from the page.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        probe::read(self.va).ok()
    }
}

/// A page of the kernel.
#[derive(Debug)]
pub struct KernelPage<B> {
    va: u64,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend> KernelPage<B> {
    /// Maps the page, `place` pages from the start of the kernel's window.
    #[must_use]
    pub fn mapped(place: u64) -> Self {
        let mut page = Self {
            va: KERNEL_WINDOW.start + place * Size::Page.bytes(),
            backend: PhantomData,
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
        B::TLB.mapped(&self.range());
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
        page_at::<B>(self.va)
    }

    /// Whether this CPU can read the page.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        probe::read(self.va).is_ok()
    }
}
