//! Pools of physical memory, set aside at link time.

use core::{cell::UnsafeCell, ptr::with_exposed_provenance_mut, sync::atomic::AtomicU64};

use shootdown_workload::canary::POISON;
use spin::Mutex;

/// Bytes of a page table and of a small page.
pub const PAGE: u64 = 4096;

/// Memory for `N` frames of 4 KiB. The linker puts it into low memory, which is identity mapped.
#[repr(C, align(4096))]
pub(crate) struct Arena<const N: usize>(UnsafeCell<[[u64; 512]; N]>);

// SAFETY: the memory is only ever reached through its address, by the owner of each frame and the MMU.
unsafe impl<const N: usize> Sync for Arena<N> {}

impl<const N: usize> Arena<N> {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new([[0; 512]; N]))
    }

    fn start(&self) -> u64 {
        self.0.get().expose_provenance() as u64
    }

    fn end(&self) -> u64 {
        self.start() + N as u64 * PAGE
    }
}

/// Hands out the frames of an [`Arena`], the one given back last first: a stale translation then soon shows.
///
/// Its lock is never held while waiting for another CPU, so it may be taken with interrupts off.
pub(crate) struct Pool<const N: usize, const SLOTS: usize> {
    arena: &'static Arena<N>,
    /// Bytes of the frames of this pool; a multiple of [`PAGE`].
    size: u64,
    state: Mutex<State<SLOTS>>,
}

struct State<const SLOTS: usize> {
    /// Frames never handed out start here, counted in frames of this pool.
    fresh: usize,
    free: [u64; SLOTS],
    free_count: usize,
}

impl<const N: usize, const SLOTS: usize> Pool<N, SLOTS> {
    pub(crate) const fn new(arena: &'static Arena<N>, size: u64) -> Self {
        let state = State {
            fresh: 0,
            free: [0; SLOTS],
            free_count: 0,
        };
        Self {
            arena,
            size,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.arena.start()..self.arena.end()).contains(&address)
    }

    /// A frame that is poisoned, or `None` when all are taken.
    pub(crate) fn take(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state.free_count > 0 {
            state.free_count -= 1;
            let address = state.free[state.free_count];
            drop(state);
            assert!(
                is_poisoned(address),
                "something wrote to the free frame {address:#x}"
            );
            return Some(address);
        }
        let address =
            self.arena.start().next_multiple_of(self.size) + state.fresh as u64 * self.size;
        if state.fresh == SLOTS || address + self.size > self.arena.end() {
            return None;
        }
        state.fresh += 1;
        drop(state);
        poison(address, self.size);
        Some(address)
    }

    /// Poisons the frame and puts it back.
    pub(crate) fn give_back(&self, address: u64) {
        poison(address, self.size);
        let mut state = self.state.lock();
        let count = state.free_count;
        state.free[count] = address;
        state.free_count += 1;
    }

    /// How many frames can still be taken.
    pub(crate) fn available(&self) -> usize {
        let state = self.state.lock();
        let usable = self.arena.end() - self.arena.start().next_multiple_of(self.size);
        state.free_count + (usable / self.size).min(SLOTS as u64) as usize - state.fresh
    }
}

/// The word at a physical address of an arena. Tables and data change under the MMU and under stale translations,
/// so all accesses are atomic.
pub(crate) fn word(address: u64) -> &'static AtomicU64 {
    debug_assert_eq!(address % 8, 0);
    // SAFETY: callers pass addresses in an arena or in the boot page tables, which are identity mapped, live for
    // ever, and are only reached through atomics.
    unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(address as usize)) }
}

fn poison(address: u64, size: u64) {
    use core::sync::atomic::Ordering::Relaxed;
    for page in (address..address + size).step_by(PAGE as usize) {
        let last = if size == PAGE { page + PAGE } else { page + 64 };
        for at in (page..last).step_by(8) {
            word(at).store(POISON, Relaxed);
        }
    }
}

fn is_poisoned(address: u64) -> bool {
    use core::sync::atomic::Ordering::Relaxed;
    (address..address + 64)
        .step_by(8)
        .all(|at| word(at).load(Relaxed) == POISON)
}
