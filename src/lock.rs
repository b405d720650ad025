//! Spin locks that serve while they spin.

use core::marker::PhantomData;

use spin::RelaxStrategy;

use crate::platform::Platform;

/// Names the kernel's flusher, for code that has none at hand.
pub trait Serve: Platform {
    /// Calls [`TlbFlusher::poll`](crate::TlbFlusher::poll) of the kernel's flusher.
    fn serve();
}

/// A relax strategy for the locks of the `spin` crate: a CPU that spins for the lock, with interrupts off perhaps, goes
/// on to serve flush requests, so that the lock's holder may wait for a flush.
///
/// ```
/// use shootdown::{ServeWhileSpinning, Serve};
///
/// type PageTableLock<K, T> = spin::mutex::SpinMutex<T, ServeWhileSpinning<K>>;
///
/// struct AddressSpace<K: Serve> {
///     tables: PageTableLock<K, ()>,
/// }
/// ```
#[derive(Debug)]
pub struct ServeWhileSpinning<K>(PhantomData<K>);

impl<K: Serve> RelaxStrategy for ServeWhileSpinning<K> {
    #[inline(always)]
    fn relax() {
        K::serve();
        K::relax();
    }
}
