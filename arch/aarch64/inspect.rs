//! The flusher's shared words by name, for the simulated machine.

use super::Broadcast;
use crate::inspect::Name;

impl<P, I, const W: usize, const A: usize> Broadcast<P, I, W, A> {
    /// The flusher's shared words.
    #[doc(hidden)]
    pub fn words(&self, name: Name<'_>) {
        self.asids.words(&mut |word| name("asids", word));
    }
}
