//! The flusher's shared words by name, for the simulated machine.

use super::Tlb;
use crate::inspect::{Name, domain, mask};

impl<P, C, I, const W: usize> Tlb<P, C, I, W> {
    /// The flusher's shared words.
    #[doc(hidden)]
    pub fn words(&self, name: Name<'_>) {
        domain(&self.kernel, name);
        mask(&self.online, name);
    }
}
