//! The flusher's shared words by name, for the simulated machine.

use super::Tlb;
use crate::inspect::Name;

impl<P, M, I, const W: usize, const A: usize> Tlb<P, M, I, W, A> {
    /// The flusher's shared words.
    #[doc(hidden)]
    pub fn words(&self, name: Name<'_>) {
        self.asids.words(name);
    }
}
