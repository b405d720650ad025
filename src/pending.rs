//! [`Pending`]: a flush under way.

use crate::{
    flusher::{Scope, TlbFlusher},
    platform::Pin,
    request::Request,
};

/// A flush that has started and is not yet complete.
///
/// It keeps the caller on this CPU (no migration and no other thread), since hardware that broadcasts completes only
/// what the same CPU has issued; so it is not `Send`. Dropping it waits. Several may be open at once and end in any
/// order. Forgetting it leaks the pin and nothing else: the other CPUs' requests live in the space, not here.
///
/// ```compile_fail
/// fn is_send<T: Send>(_: T) {}
/// fn flush_elsewhere<F: shootdown::TlbFlusher>(pending: shootdown::Pending<'_, F, 1>) {
///     is_send(pending);
/// }
/// ```
#[derive(Debug)]
#[must_use = "the flush is complete only when this is waited for or dropped; until then nothing may be reused"]
pub struct Pending<'a, F: TlbFlusher<W>, const W: usize = 1> {
    flusher: &'a F,
    scope: Scope<'a, W>,
    generation: u64,
    reach: F::Reach,
    _pin: Pin<F::Platform>,
}

impl<'a, F: TlbFlusher<W>, const W: usize> Pending<'a, F, W> {
    #[inline(always)]
    pub(crate) fn start(flusher: &'a F, scope: Scope<'a, W>, request: Request) -> Self {
        let _pin = Pin::new();
        let mut reach = F::Reach::default();
        let generation = flusher.start(scope, &request, &mut reach);
        Self {
            flusher,
            scope,
            generation,
            reach,
            _pin,
        }
    }

    /// Waits until the flush is complete. Serves requests addressed to this CPU meanwhile.
    ///
    /// May be called with interrupts on or off. See [`TlbFlusher`] on locks.
    #[inline(always)]
    pub fn wait(self) {}
}

impl<F: TlbFlusher<W>, const W: usize> Drop for Pending<'_, F, W> {
    #[inline(always)]
    fn drop(&mut self) {
        self.flusher
            .complete(self.scope, self.generation, &self.reach);
    }
}
