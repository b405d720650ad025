//! What a page should read as, kept beside the page tables: the oracle of every verified read.

use core::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use crate::{
    canary,
    machine::{Fault, Machine},
};

/// What is true of a page while its state does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Somebody changes it: a read may give anything.
    Changing,
    /// Mapped, and the frame holds this tag.
    Holds(u64),
    /// Unmapped, and the flush has completed: a read must fault.
    Gone,
}

/// The state of one page. Readers on other CPUs take no lock: a state that is the same before and after a read held
/// throughout, because each state carries an epoch that never comes back.
#[derive(Debug)]
pub struct Shadow {
    /// The epoch, shifted up by two, and the kind of state.
    word: AtomicU64,
    changer: AtomicUsize,
}

const CHANGING: u64 = 0;
const HOLDS: u64 = 1;
const GONE: u64 = 2;
const KIND: u64 = 3;

/// Source of epochs, one for all pages of a workload.
#[derive(Debug)]
pub struct Epochs(AtomicU64);

impl Epochs {
    /// Epochs from 1 on.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// An epoch that nobody else has or had.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }
}

impl Default for Epochs {
    fn default() -> Self {
        Self::new()
    }
}

impl Shadow {
    /// A page that was never mapped.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            word: AtomicU64::new(GONE),
            changer: AtomicUsize::new(0),
        }
    }

    /// What the page should be now.
    #[must_use]
    pub fn state(&self) -> State {
        decode(self.word.load(Acquire))
    }

    /// Says that CPU `cpu` changes the page from now on. Call before the first store to the page tables or the page.
    pub fn begin_change(&self, epoch: u64, cpu: usize) {
        self.changer.store(cpu, Relaxed);
        self.word.store(epoch << 2 | CHANGING, Relaxed);
        // Whoever sees the change itself also sees, after the read, that the state is another.
        fence(Release);
    }

    /// Says that the page is mapped and holds [`canary::tag`]`(epoch)`.
    pub fn holds(&self, epoch: u64) {
        self.word.store(epoch << 2 | HOLDS, Release);
    }

    /// Says that the page is unmapped and the flush has completed.
    pub fn gone(&self, epoch: u64) {
        self.word.store(epoch << 2 | GONE, Release);
    }

    /// The CPU that changed the page last.
    #[must_use]
    pub fn changer(&self) -> usize {
        self.changer.load(Relaxed)
    }

    /// Reads the page at `va` and judges what came.
    ///
    /// # Panics
    /// When the read gave something that no data frame can hold.
    pub fn check<M: Machine>(&self, machine: &M, va: u64) -> Verdict {
        let before = self.word.load(Acquire);
        if before & KIND == CHANGING {
            return Verdict::Unknown;
        }
        let outcome = machine.read(va);
        fence(Acquire);
        if self.word.load(Relaxed) != before {
            return Verdict::Unknown;
        }
        judge(decode(before), outcome)
    }
}

impl Default for Shadow {
    fn default() -> Self {
        Self::new()
    }
}

/// What a verified read showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The page changed meanwhile.
    Unknown,
    /// What the page tables say.
    Fresh,
    /// What they said before the last flush.
    Stale,
}

fn decode(word: u64) -> State {
    match word & KIND {
        HOLDS => State::Holds(canary::tag(word >> 2)),
        GONE => State::Gone,
        _ => State::Changing,
    }
}

/// Judges a read of a page that was in `state` all the time.
///
/// # Panics
/// When the read gave something that no data frame can hold.
pub(crate) fn judge(state: State, outcome: Result<u64, Fault>) -> Verdict {
    if let Ok(value) = outcome {
        assert!(
            canary::is_confined(value),
            "a read left the frames under test: {value:#x}"
        );
    }
    match (state, outcome) {
        (State::Changing, _) => Verdict::Unknown,
        (State::Holds(tag), Ok(value)) if value == tag => Verdict::Fresh,
        (State::Gone, Err(_)) => Verdict::Fresh,
        _ => Verdict::Stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: Result<u64, Fault> = Err(Fault { address: 0 });

    #[test]
    fn only_what_the_tables_say_is_fresh() {
        let holds = State::Holds(canary::tag(7));
        assert_eq!(judge(holds, Ok(canary::tag(7))), Verdict::Fresh);
        assert_eq!(judge(holds, Ok(canary::tag(6))), Verdict::Stale);
        assert_eq!(judge(holds, Ok(canary::POISON)), Verdict::Stale);
        assert_eq!(judge(holds, FAULT), Verdict::Stale);
        assert_eq!(judge(State::Gone, FAULT), Verdict::Fresh);
        assert_eq!(judge(State::Gone, Ok(canary::tag(7))), Verdict::Stale);
        assert_eq!(judge(State::Changing, Ok(canary::tag(7))), Verdict::Unknown);
    }

    #[test]
    #[should_panic(expected = "left the frames under test")]
    fn other_memory_is_never_seen() {
        judge(State::Gone, Ok(0));
    }

    #[test]
    fn states_follow_each_other() {
        let shadow = Shadow::new();
        assert_eq!(shadow.state(), State::Gone);
        shadow.begin_change(1, 3);
        assert_eq!((shadow.state(), shadow.changer()), (State::Changing, 3));
        shadow.holds(1);
        assert_eq!(shadow.state(), State::Holds(canary::tag(1)));
    }
}
