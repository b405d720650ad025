//! The flusher's shared words by name, for the simulated machine.

use super::{Courier, Tlb};
use crate::inspect::{Name, domain, mask};

impl<P, C: Courier, I, const W: usize> Tlb<P, C, I, W> {
    /// The flusher's shared words.
    #[doc(hidden)]
    pub fn words(&self, name: Name<'_>) {
        domain(&self.kernel, name);
        mask(&self.online, name);
        if let Some(broadcast) = self.courier.broadcast() {
            broadcast.words(name);
        }
    }
}
