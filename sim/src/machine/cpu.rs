//! One CPU's state.

use std::collections::VecDeque;

use super::{common::COMMON, part::Part, stores::Buffered, tlb::Tlb};

/// Whether a CPU can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Runnable,
    /// In a loop that waits; nothing that it has read has changed.
    Parked,
    /// Its scenario has ended; it takes interrupts.
    Idle,
}

/// A CPU.
#[derive(Debug)]
pub(crate) struct Cpu {
    /// The number that the flusher knows it by.
    pub number: usize,
    pub state: State,
    /// The operation of its scenario, and scheduling points within it.
    pub section: u16,
    pub step: u32,
    /// Operations begun.
    pub sections: u16,
    /// Rises with each turn of a waiting loop; 0 is never used.
    pub epoch: u32,
    /// Something that was read in this epoch has changed.
    pub changed: bool,
    pub buffer: VecDeque<Buffered>,
    /// No store or read-modify-write since the last `publish_before_ipi`.
    pub published: bool,
    /// Interrupts sent to this CPU that have not arrived.
    pub in_flight: u32,
    /// An interrupt has arrived and is not yet taken; more merge into it.
    pub pending: bool,
    pub interrupts_on: bool,
    /// Depth of polls and waits of the flusher, to see that interrupts nest there.
    pub inside: u32,
    pub pins: u32,
    pub tlb: Tlb,
    /// x86: CR3, with bit 63 as zero. arm64: TTBR0.
    pub root: u64,
    /// arm64: a TTBR0 that was written and need not have taken effect.
    pub next_root: Option<u64>,
    /// arm64: TTBR1, and one that was written and need not have taken effect.
    pub ttbr1: u64,
    pub next_ttbr1: Option<u64>,
    /// arm64: what read-modify-writes have stored, which other CPUs need not see before this CPU's later loads are done.
    pub updates: VecDeque<super::exclusive::Update>,
    /// arm64: broadcast TLBIs so far.
    pub broadcasts: u64,
    /// x86: CR4.
    pub cr4: u64,
    /// arm64: what was issued and has not taken effect.
    pub issued: Vec<super::arm::Issued>,
    /// The oracle does not hold this CPU to anything: it is offline, or on its way.
    pub exempt: bool,
    /// arm64: broadcasts reach this CPU: it is powered and in the Inner Shareable domain.
    pub listens: bool,
    /// The space that the CPU's code uses or may use at any moment: between `switch` and the next switch, unload, lazy
    /// period or offline.
    pub uses: Option<u8>,
}

impl Cpu {
    pub(crate) fn new(number: usize, root: u64, part: Part) -> Self {
        let common = if part.common { COMMON } else { 0 };
        Self {
            number,
            state: State::Runnable,
            section: 0,
            step: 0,
            sections: 0,
            epoch: 1,
            changed: false,
            buffer: VecDeque::new(),
            published: false,
            in_flight: 0,
            pending: false,
            interrupts_on: true,
            inside: 0,
            pins: 0,
            tlb: Tlb::default(),
            root,
            next_root: None,
            ttbr1: root | common,
            next_ttbr1: None,
            updates: VecDeque::new(),
            broadcasts: 0,
            cr4: super::x86::INITIAL_CR4,
            issued: Vec::new(),
            exempt: true,
            listens: false,
            uses: None,
        }
    }
}
