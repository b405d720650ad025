//! Waiting CPUs are lazy: the same word, the same pair of barriers, and the generation is compared before the space is used
//! again. There is no second flag, so nothing can be lost between two.
//!
//! ```text
//! initiator                          CPU that waits
//! clear the entry                    loaded := lazy
//! generation := g                    halted...
//! full barrier                       loaded := SWITCHING
//! read loaded: lazy, skip            full barrier
//!                                    read the generation: g, flush
//! ```
//!
//! A flag in the byte that KVM owns, as was posted for waiting vCPUs (Ishiguro, 2025), loses requests: FLUSH_TLB is taken
//! by the host when the vCPU enters, but a vCPU that waits may not have left, or may be on its way in already. The
//! variant `WaitAsPosted` shows it.

use super::{Courier, Instructions, Tlb};
use crate::{
    atomic::Ordering::{Relaxed, Release},
    coverage::{Branch, took},
    flusher::Waiting,
    loaded_space,
    platform::{IpiPlatform, IrqsOff},
    slot::Loaded,
    variant::{Broken, broken},
};

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    #[inline]
    pub(super) fn enter_wait(&self) -> Waiting {
        let _irqs = IrqsOff::<P>::new();
        let my = self.my_slot("wait_enter");
        let loaded = Loaded(my.seen.loaded.load(Relaxed));
        if !loaded.is_used() {
            return Waiting::NOT_LAZY;
        }
        took(Branch::WaitEntered);
        if self.posted_wait(P::current_cpu(), true) {
            return Waiting::NOT_LAZY;
        }
        // Release, and no barrier: as in `enter_lazy`.
        my.seen.loaded.store(loaded.as_lazy().0, Release);
        Waiting(loaded_space::remember(my))
    }

    /// # Safety
    ///
    /// As for [`TlbFlusher::wait_leave`](crate::TlbFlusher::wait_leave).
    #[inline]
    pub(super) unsafe fn leave_wait(&self, waiting: Waiting) {
        let Some(space) = waiting.0 else {
            let _ = self.posted_wait(P::current_cpu(), false);
            return;
        };
        took(Branch::WaitLeft);
        // SAFETY: the caller promises that the space lives; it came from this flusher, whose word count is `W`.
        let space = unsafe { loaded_space::remembered::<W>(space) };
        // SAFETY: promised by the caller.
        unsafe { self.switch_to(space) }
    }

    /// Whether the wait is by the protocol that was posted.
    fn posted_wait(&self, me: usize, waits: bool) -> bool {
        #[cfg(any(loom, feature = "_sim"))]
        if broken(Broken::WaitAsPosted) {
            self.courier.wait_as_posted(me, waits);
            return true;
        }
        let _ = (me, waits, broken(Broken::WaitAsPosted));
        false
    }
}
