//! Stale translations come and go: the emulator's TLB may evict one before it is looked at.

/// What an attempt to look at a stale translation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Attempt {
    /// There was one, and all that the test is about was seen.
    Conclusive,
    /// There was none to be seen. That proves nothing.
    Evicted,
}

impl Attempt {
    /// Conclusive, if the translations were there.
    pub fn conclusive_if(seen: bool) -> Self {
        if seen {
            Self::Conclusive
        } else {
            Self::Evicted
        }
    }
}

const MOST: u64 = 8;

/// Pages between the places of two attempts, so that they don't compete with the same code, stacks and tables.
const STEP: u64 = 67;

/// Makes attempts until one is conclusive. Each is given a number of pages, of blocks where these are mapped, that its
/// place is away from the start of the window.
///
/// # Panics
/// When none is.
pub fn attempts(mut attempt: impl FnMut(u64) -> Attempt) {
    let conclusive = (1..=MOST).any(|nth| attempt(nth * STEP % 256) == Attempt::Conclusive);
    assert!(
        conclusive,
        "no stale translation was seen in {MOST} attempts"
    );
}
