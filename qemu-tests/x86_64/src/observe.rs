//! What all CPUs see of a page before and after it changes.

use core::hint::spin_loop;

use shootdown::{Space, x86_64::skip_invalidations};
use shootdown_workload::Barrier;
use spin::Mutex;
use x86_kernel::{
    MAX_CPUS, host,
    paging::{KERNEL_WINDOW, USER_WINDOW, USER_WINDOW_LEN},
    probe::{self, Fault},
    smp,
};

use crate::{Backend, room};

/// Whether a change is followed by its flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// It is.
    Done,
    /// The crate runs its whole protocol, without the instruction that invalidates.
    Hollow,
    /// It is not.
    Missing,
}

impl Flush {
    /// Runs `flush`, or not.
    pub fn run(self, flush: impl FnOnce()) {
        match self {
            Self::Done => flush(),
            Self::Hollow => {
                hollow(true);
                flush();
                hollow(false);
            }
            Self::Missing => {}
        }
    }
}

/// From now on neither this kernel nor the host that it plays executes an invalidation, or they do so again.
pub fn hollow(hollow: bool) {
    skip_invalidations(hollow);
    host::skip_flushes(hollow);
}

/// What an access gave.
pub type Outcome = Result<u64, Fault>;

/// Reads a word of one of the windows.
///
/// # Errors
/// [`Fault`] when that raised a page fault.
pub fn read(va: u64) -> Outcome {
    assert_in_window(va);
    // SAFETY: the tests map nothing but data frames in the windows.
    unsafe { probe::read(va) }
}

/// Writes the address to itself, and gives it back.
///
/// # Errors
/// [`Fault`] when that raised a page fault.
pub fn write(va: u64) -> Outcome {
    assert_in_window(va);
    // SAFETY: as for `read`.
    unsafe { probe::write(va, va) }.map(|()| va)
}

fn assert_in_window(va: u64) {
    let inside = |start| va.wrapping_sub(start) < USER_WINDOW_LEN;
    assert!(
        inside(USER_WINDOW) || inside(KERNEL_WINDOW),
        "bad address {va:#x}"
    );
}

/// The most addresses that are observed at once.
pub const ADDRESSES: usize = 3;

/// What each CPU saw after a change.
#[derive(Debug)]
pub struct Observed {
    cpus: usize,
    seen: [[Option<Outcome>; ADDRESSES]; MAX_CPUS],
}

impl Observed {
    /// Asserts that CPUs `0..` saw at each address what `expected` says for its index.
    ///
    /// # Panics
    /// When a CPU saw something else.
    pub fn assert_all(&self, expected: impl Fn(usize) -> Option<u64>) {
        for cpu in 0..self.cpus {
            self.assert_one(cpu, &expected);
        }
    }

    /// Asserts what one CPU saw; `None` is a page fault.
    ///
    /// # Panics
    /// When it saw something else.
    pub fn assert_one(&self, cpu: usize, expected: impl Fn(usize) -> Option<u64>) {
        for (index, outcome) in self.seen[cpu].iter().enumerate() {
            if let Some(outcome) = outcome {
                assert_eq!(outcome.ok(), expected(index), "CPU {cpu}, address {index}");
            }
        }
    }
}

/// How the CPUs observe.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    /// What they have loaded; the kernel's own tables without.
    pub space: Option<&'a Space>,
    /// Whether all but CPU 0 are lazy during the change.
    pub lazy: bool,
    /// How they look.
    pub access: fn(u64) -> Outcome,
}

/// Has all CPUs access `addresses`, then CPU 0 run `change`, then all access them again: what they saw then.
///
/// # Panics
/// When an access before the change faults.
pub fn observe<B: Backend>(
    tlb: &B,
    watch: Watch<'_>,
    addresses: &[u64],
    change: &(dyn Fn() + Sync),
) -> Observed {
    let cpus = smp::cpus();
    let barrier = Barrier::new(cpus);
    let seen = Mutex::new([[None; ADDRESSES]; MAX_CPUS]);
    smp::run_on_all(&|cpu| {
        room::make();
        if let Some(space) = watch.space {
            // SAFETY: all tables map the kernel, and the caller's space is retired or leaked, never moved before.
            unsafe { tlb.switch(space) };
        }
        for va in addresses {
            (watch.access)(*va).expect("the page is mapped");
        }
        let lazy = (watch.lazy && cpu != 0).then(|| tlb.lazy_enter());
        barrier.wait(spin_loop);
        if cpu == 0 {
            change();
        }
        barrier.wait(spin_loop);
        if let (Some(outer), Some(space)) = (lazy, watch.space) {
            // SAFETY: as above; the space was in use before.
            unsafe { tlb.lazy_leave(outer, space) };
        }
        for (index, va) in addresses.iter().enumerate() {
            let outcome = (watch.access)(*va);
            seen.lock()[cpu][index] = Some(outcome);
        }
        barrier.wait(spin_loop);
        if watch.space.is_some() {
            // SAFETY: the kernel's tables map the kernel.
            unsafe { tlb.unload() };
        }
    });
    Observed {
        cpus,
        seen: seen.into_inner(),
    }
}
