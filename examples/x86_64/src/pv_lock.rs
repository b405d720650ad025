//! A paravirtual spin lock: who does not get it soon halts, and is woken by who gives it back.
//!
//! While a CPU is halted it is lazy for the flusher (`wait_enter`): flushes need neither wake it nor wait for it, but
//! for those of freed tables, changed attributes and the kernel. These interrupt it, which it takes, since it halts with
//! interrupts on. A lock whose waiters halt with interrupts off must not be held across such a flush.

use core::{
    cell::UnsafeCell,
    hint::spin_loop,
    ops::{Deref, DerefMut},
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use shootdown::TlbFlusher;
use x86_64::instructions::interrupts;

use crate::{apic, percpu, platform::Kernel, traps};

/// The vector of the interrupt that wakes a waiting CPU.
const KICK_VECTOR: u8 = 0xe1;
/// Turns before a CPU halts.
const SPINS: u32 = 8;

/// Sets the wake-up interrupt up, once.
pub fn init() {
    // Coming back from the halt is all there is to do.
    traps::set_handler(KICK_VECTOR, || {});
}

/// The lock. Not for interrupt handlers; taken with interrupts on.
#[derive(Debug)]
pub struct PvLock<T> {
    taken: AtomicBool,
    /// CPUs that are halted, or about to.
    waiting: AtomicU64,
    halts: AtomicU64,
    data: UnsafeCell<T>,
}

// SAFETY: only who has taken the lock reaches the data.
unsafe impl<T: Send> Sync for PvLock<T> {}

impl<T> PvLock<T> {
    /// A lock that nobody has.
    pub const fn new(data: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            halts: AtomicU64::new(0),
            data: UnsafeCell::new(data),
        }
    }

    /// How often a CPU has halted for it.
    pub fn halts(&self) -> u64 {
        self.halts.load(Relaxed)
    }

    /// Whether a CPU waits for it, halted or about to be.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Acquire) != 0
    }

    /// Takes the lock.
    ///
    /// # Safety
    /// The space that this CPU uses, if any, stays alive, and is not retired, meanwhile.
    ///
    /// # Panics
    /// When interrupts are off.
    pub unsafe fn lock<F: TlbFlusher<Platform = Kernel>>(&self, tlb: &F) -> PvGuard<'_, T> {
        assert!(
            interrupts::are_enabled(),
            "it halts until an interrupt comes"
        );
        for _ in 0..SPINS {
            if self.try_take() {
                return PvGuard(self);
            }
            tlb.poll();
            spin_loop();
        }
        interrupts::disable();
        let waiting = tlb.wait_enter();
        let me = 1 << percpu::current();
        loop {
            // Registered first, looked at afterwards; who gives the lock back does it the other way round. So a lock
            // that is given back in between is either seen here or wakes this CPU.
            self.waiting.fetch_or(me, SeqCst);
            if self.try_take() {
                break;
            }
            self.halts.fetch_add(1, Relaxed);
            // An interrupt that has come since they were disabled is taken after the halt has begun, and ends it.
            interrupts::enable_and_hlt();
            interrupts::disable();
        }
        self.waiting.fetch_and(!me, SeqCst);
        // SAFETY: promised by the caller: the space is the one that was used before.
        unsafe { tlb.wait_leave(waiting) };
        interrupts::enable();
        PvGuard(self)
    }

    fn try_take(&self) -> bool {
        !self.taken.load(Relaxed)
            && self
                .taken
                .compare_exchange(false, true, SeqCst, Relaxed)
                .is_ok()
    }

    fn give_back(&self) {
        self.taken.store(false, Release);
        // SeqCst on both sides, see `lock`.
        core::sync::atomic::fence(SeqCst);
        let waiting = self.waiting.load(Acquire);
        if waiting != 0 {
            let first = waiting & waiting.wrapping_neg();
            interrupts::without_interrupts(|| apic::send_to_mask(KICK_VECTOR, first));
        }
    }
}

/// The lock, taken; dropping gives it back.
#[derive(Debug)]
pub struct PvGuard<'a, T>(&'a PvLock<T>);

impl<T> Deref for PvGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is taken.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for PvGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is taken, and the guard is borrowed mutably.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for PvGuard<'_, T> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}
