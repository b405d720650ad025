//! [`Batch`]: changes in many spaces, one flush (page reclaim).

use crate::{
    flusher::{Scope, TlbFlusher},
    platform::Pin,
    request::Request,
    space::Space,
    variant::{Broken, broken},
};

/// Collects changes in up to `N` spaces and flushes them together: each CPU that is concerned is reached once.
///
/// Each change is made known at once, so a CPU that loads the space later has it; what is put off is reaching the CPUs
/// that run it. So before anything else changes in a member's page table that relies on the flush, and before a frame
/// is reused, the batch must be flushed. It keeps the caller on this CPU. Dropping it flushes.
///
/// When more than `N` spaces are added, what was collected is flushed first.
///
/// ```
/// use shootdown::{Batch, Range, Request, Space, TlbFlusher};
///
/// fn reclaim<F: TlbFlusher>(tlb: &F, mappings: &[(&Space, Range)]) {
///     let mut batch = Batch::<_, 1, 8>::new(tlb);
///     for (space, page) in mappings {
///         // clear the entry, then:
///         batch.add(space, Request::range(*page));
///     }
///     batch.flush(); // now the page may be reused
/// }
/// ```
#[derive(Debug)]
#[must_use = "the changes reach other CPUs when the batch is flushed or dropped"]
pub struct Batch<'a, F: TlbFlusher<W>, const W: usize = 1, const N: usize = 8> {
    flusher: &'a F,
    /// Space and generation of its last change.
    members: [Option<(&'a Space<W>, u64)>; N],
    len: usize,
    reach: F::Reach,
    _pin: Pin<F::Platform>,
}

impl<'a, F: TlbFlusher<W>, const W: usize, const N: usize> Batch<'a, F, W, N> {
    /// An empty batch.
    pub fn new(flusher: &'a F) -> Self {
        const { assert!(N >= 1, "a batch has room for at least one space") };
        Self {
            flusher,
            members: [None; N],
            len: 0,
            reach: F::Reach::default(),
            _pin: Pin::new(),
        }
    }

    /// Adds a change that the caller has just made in the page table of `space`.
    ///
    /// # Panics
    ///
    /// If the CPU is not online or the space has retired.
    pub fn add(&mut self, space: &'a Space<W>, request: Request) {
        let known = self.members[..self.len]
            .iter()
            .position(|member| member.is_some_and(|(member, _)| member.id() == space.id()));
        if known.is_none() && self.len == N {
            self.finish();
        }
        let scope = Scope::Space(space);
        let generation = self.flusher.announce(scope, &request, &mut self.reach);
        let place = known.unwrap_or(self.len);
        self.members[place] = Some((space, generation));
        self.len = self.len.max(place + 1);
    }

    /// Whether nothing was added since the last flush.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Flushes and waits. The batch can be used again.
    pub fn flush(&mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if self.len == 0 {
            return;
        }
        self.flusher.dispatch(&mut self.reach);
        let first = if broken(Broken::BatchLastOnly) {
            self.len - 1
        } else {
            0
        };
        for (space, generation) in self.members[first..self.len].iter().flatten() {
            self.flusher
                .complete(Scope::Space(space), *generation, &self.reach);
        }
        self.members = [None; N];
        self.len = 0;
        self.reach = F::Reach::default();
    }
}

impl<F: TlbFlusher<W>, const W: usize, const N: usize> Drop for Batch<'_, F, W, N> {
    fn drop(&mut self) {
        self.finish();
    }
}
