//! QEMU's virt machine as the workloads see it.

use core::fmt;
use core::sync::atomic::Ordering;

use shootdown::TlbFlusher;
use shootdown_workload as workload;
use workload::{Fault, MapError};

use crate::crew::Crew;
use crate::frames::{Frame, Size};
use crate::paging::{self, Access, Tables};
use crate::{cpu, lock, probe};

/// The CPUs of a crew, the pools, and the flusher under test.
pub struct Virt<F: 'static> {
    crew: Crew,
    tlb: &'static F,
}

impl<F> fmt::Debug for Virt<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Virt")
            .field("crew", &self.crew)
            .finish_non_exhaustive()
    }
}

impl<F> Virt<F> {
    /// A machine that has the CPUs of `crew`, all of them online for `tlb`.
    #[must_use]
    pub fn new(crew: Crew, tlb: &'static F) -> Self {
        Self { crew, tlb }
    }
}

impl<F: TlbFlusher> workload::Machine for Virt<F> {
    const ARCH: &'static str = "aarch64";
    const WINDOW: u64 = paging::WINDOW.start;
    const WINDOW_LEN: u64 = paging::WINDOW.end - paging::WINDOW.start;

    type Tlb = F;
    type Frame = Frame;
    type Tables = Tables;

    fn tlb(&self) -> &'static F {
        self.tlb
    }

    fn cpus(&self) -> usize {
        self.crew.cpus()
    }

    fn this_cpu(&self) -> usize {
        cpu::id()
    }

    fn relax(&self) {
        lock::relax();
    }

    fn on_all_cpus(&self, work: &(dyn Fn(usize) + Sync)) {
        self.crew.run(work);
    }

    fn frame(&self) -> Option<Frame> {
        Frame::data(Size::Page)
    }

    fn tables(&self) -> Option<Tables> {
        Tables::of_space()
    }

    fn read(&self, va: u64) -> Result<u64, Fault> {
        probe::read(va).map_err(|fault| Fault {
            address: fault.address,
        })
    }

    fn write(&self, va: u64, value: u64) -> Result<(), Fault> {
        probe::write(va, value).map_err(|fault| Fault {
            address: fault.address,
        })
    }
}

impl workload::Frame for Frame {
    fn address(&self) -> u64 {
        self.address()
    }

    fn load(&self) -> u64 {
        self.words()[0].load(Ordering::Relaxed)
    }

    fn store(&self, value: u64) {
        self.words()[0].store(value, Ordering::Relaxed);
    }
}

impl workload::PageTables for Tables {
    type Frame = Frame;

    fn root(&self) -> u64 {
        self.root()
    }

    fn map(&mut self, va: u64, frame: Frame) -> Result<(), MapError> {
        self.map(va, frame, Access::ReadWrite)
            .map_err(|error| match error {
                paging::MapError::Occupied => MapError::Occupied,
                paging::MapError::NoFrame => MapError::NoFrame,
            })
    }

    fn unmap(&mut self, va: u64) -> Option<Frame> {
        self.unmap(va, Size::Page)
    }

    fn unmap_with_tables(&mut self, va: u64, pages: usize, freed: &mut dyn FnMut(Frame)) {
        self.unmap_with_tables(va..va + pages as u64 * workload::machine::PAGE, freed);
    }
}
