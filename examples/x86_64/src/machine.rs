//! This machine as the workloads see it.

use core::{fmt, hint::spin_loop};

use shootdown::TlbFlusher;
use shootdown_workload::{Fault, Frame as WorkloadFrame, Machine, MapError, PageTables};

use crate::{
    arena::PAGE,
    frames::Frame,
    host,
    paging::{Tables, USER_WINDOW, USER_WINDOW_LEN},
    percpu, probe, smp,
};

/// The machine with a backend to be tested.
pub struct Pc<F: 'static>(pub &'static F);

impl<F> fmt::Debug for Pc<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pc").finish_non_exhaustive()
    }
}

impl<F: TlbFlusher> Machine for Pc<F> {
    const ARCH: &'static str = "x86_64";
    const WINDOW: u64 = USER_WINDOW;
    const WINDOW_LEN: u64 = USER_WINDOW_LEN;

    type Tlb = F;
    type Frame = Frame;
    type Tables = Tables;

    fn tlb(&self) -> &'static F {
        self.0
    }

    fn cpus(&self) -> usize {
        smp::cpus()
    }

    fn this_cpu(&self) -> usize {
        percpu::current()
    }

    fn relax(&self) {
        host::disturb();
        spin_loop();
    }

    fn on_all_cpus(&self, work: &(dyn Fn(usize) + Sync)) {
        smp::run_on_all(work);
    }

    fn frame(&self) -> Option<Frame> {
        Frame::data()
    }

    fn tables(&self) -> Option<Tables> {
        Tables::new()
    }

    fn read(&self, va: u64) -> Result<u64, Fault> {
        assert_in_window(va);
        // SAFETY: only data frames are mapped in the window, also by stale translations, and those are accessed by
        // single words, through probes and atomics.
        unsafe { probe::read(va) }.map_err(|fault| Fault {
            address: fault.address,
        })
    }

    fn write(&self, va: u64, value: u64) -> Result<(), Fault> {
        assert_in_window(va);
        // SAFETY: as for `read`.
        unsafe { probe::write(va, value) }.map_err(|fault| Fault {
            address: fault.address,
        })
    }
}

fn assert_in_window(va: u64) {
    assert!(
        va.wrapping_sub(USER_WINDOW) < USER_WINDOW_LEN && va.is_multiple_of(8),
        "bad address {va:#x}"
    );
}

impl WorkloadFrame for Frame {
    fn address(&self) -> u64 {
        self.address()
    }

    fn load(&self) -> u64 {
        self.load(0)
    }

    fn store(&self, value: u64) {
        self.store(0, value);
    }
}

impl PageTables for Tables {
    type Frame = Frame;

    fn root(&self) -> u64 {
        self.root()
    }

    fn map(&mut self, va: u64, frame: Frame) -> Result<(), MapError> {
        self.user().map(va, frame)
    }

    fn unmap(&mut self, va: u64) -> Option<Frame> {
        self.user().unmap(va)
    }

    fn unmap_with_tables(&mut self, va: u64, pages: usize, freed: &mut dyn FnMut(Frame)) {
        self.user().clear(va, pages as u64 * PAGE, freed);
    }
}
