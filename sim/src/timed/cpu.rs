//! One CPU of the machine in virtual time.

use std::collections::HashMap;

/// What a CPU does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It acts when its clock is least.
    Ready,
    /// It computes or idles; an interrupt breaks in.
    Open,
    /// It waits for a write to a line that it has read, or for an interrupt.
    Parked,
    /// Its body has ended; it takes interrupts only.
    Ended,
}

/// A CPU.
#[derive(Debug)]
pub(super) struct Cpu {
    pub now: u64,
    pub state: State,
    /// The only entry of the queue that counts is the one with this ticket.
    pub ticket: u64,
    /// The time it is queued for; `u64::MAX` while it is not.
    pub due: u64,
    pub interrupts_on: bool,
    pub pins: u32,
    /// When the flush interrupt arrives, if it is on its way or waiting: one, as in the interrupt controller.
    pub arrival: Option<u64>,
    /// A line that it has read was written since the last turn of a waiting loop.
    pub changed: bool,
    /// Cycles spent in the interrupt handler.
    pub stolen: u64,
    /// Flush interrupts taken.
    pub interrupts: u64,
    pub root: u64,
    pub cr4: u64,
    /// For each tag, how many entries of the working set were dropped and not used since. A tag that is not here has
    /// none at all.
    pub cold: HashMap<u16, u64>,
    /// When all that it has broadcast is done.
    pub broadcast_done: u64,
    /// It is a vCPU that the host does not run now.
    pub out: bool,
    /// The host drops everything before it runs again.
    pub flush_on_entry: bool,
    /// Cycles that the host has taken from it and that its thread has not yet felt.
    pub owed: u64,
    /// Broadcasts of others that have disturbed it up to now.
    pub snooped: u64,
}

impl Cpu {
    pub(super) fn new(root: u64) -> Self {
        Self {
            now: 0,
            state: State::Ready,
            ticket: 0,
            due: u64::MAX,
            interrupts_on: true,
            pins: 0,
            arrival: None,
            changed: false,
            stolen: 0,
            interrupts: 0,
            root,
            cr4: 1 << 7,
            cold: HashMap::new(),
            broadcast_done: 0,
            out: false,
            flush_on_entry: false,
            owed: 0,
            snooped: 0,
        }
    }

    /// Whether an interrupt would be taken now.
    pub(super) fn has_interrupt(&self) -> bool {
        self.interrupts_on && self.arrival.is_some_and(|arrival| arrival <= self.now)
    }
}
