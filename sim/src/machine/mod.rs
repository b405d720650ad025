//! The simulated machine: CPUs with store buffers, interrupts and TLBs, and physical memory with page tables.
//!
//! One machine at a time is current on a host thread ([`current`]); the crate's hooked atomics and the instruction
//! traits act on it.

pub(crate) mod arm;
pub(crate) mod asids;
pub(crate) mod common;
pub(crate) mod cpu;
pub(crate) mod current;
pub(crate) mod exclusive;
pub(crate) mod hook;
pub(crate) mod interrupts;
pub(crate) mod layout;
pub(crate) mod lines;
#[cfg(test)]
mod litmus;
pub(crate) mod oracle;
pub(crate) mod part;
pub(crate) mod physical;
pub(crate) mod scheduler;
pub(crate) mod stores;
pub(crate) mod tlb;
pub(crate) mod tlbi;
pub(crate) mod trace;
pub(crate) mod walk;
pub(crate) mod x86;

pub(crate) use hook::install;

use crate::{
    choice::{Choice, Point},
    chooser::Chooser,
};
use cpu::Cpu;
use lines::Lines;
use oracle::Oracle;
use part::Part;
use physical::Physical;
use trace::Trace;

/// The architecture and its optional features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// x86_64.
    X86 {
        /// The CPU has PCIDs.
        pcid: bool,
        /// The CPU has INVPCID.
        invpcid: bool,
    },
    /// arm64.
    Arm,
}

/// What happened beside the protocol's own branches; a run that did none of it proves little.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Tally {
    pub steps: u64,
    pub switches: u64,
    pub drains: u64,
    pub interrupts: u64,
    pub nested_interrupts: u64,
    pub early_interrupts: u64,
    pub fills: u64,
    pub fills_through_caches: u64,
    pub nmi_accesses: u64,
    pub nmi_refused: u64,
    pub accesses: u64,
    pub stale_hits_before_completion: u64,
    pub effects: u64,
    pub flushes: u64,
    pub parks: u64,
    pub cut: u64,
    pub spent: u64,
    pub refused: u64,
}

impl Tally {
    /// Names and counts.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("steps", self.steps),
            ("changes of CPU", self.switches),
            ("store-buffer drains", self.drains),
            ("interrupts", self.interrupts),
            ("interrupts in a poll or wait", self.nested_interrupts),
            ("interrupts too early", self.early_interrupts),
            ("speculative fills", self.fills),
            (
                "fills through paging-structure caches",
                self.fills_through_caches,
            ),
            ("NMI accesses", self.nmi_accesses),
            ("NMI accesses refused", self.nmi_refused),
            ("memory accesses", self.accesses),
            (
                "old entry used before completion",
                self.stale_hits_before_completion,
            ),
            ("late effects", self.effects),
            ("flushes", self.flushes),
            ("CPUs parked in a spin", self.parks),
            ("runs ended by a use after retirement", self.cut),
            ("runs ended by the last ASID generation", self.spent),
            ("CPUs refused for entries that others use", self.refused),
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.switches += other.switches;
        self.drains += other.drains;
        self.interrupts += other.interrupts;
        self.nested_interrupts += other.nested_interrupts;
        self.early_interrupts += other.early_interrupts;
        self.fills += other.fills;
        self.fills_through_caches += other.fills_through_caches;
        self.nmi_accesses += other.nmi_accesses;
        self.nmi_refused += other.nmi_refused;
        self.accesses += other.accesses;
        self.stale_hits_before_completion += other.stale_hits_before_completion;
        self.effects += other.effects;
        self.flushes += other.flushes;
        self.parks += other.parks;
        self.cut += other.cut;
        self.spent += other.spent;
        self.refused += other.refused;
    }
}

/// A run that takes more scheduling points than this is taken for a livelock.
pub(crate) const STEP_LIMIT: u64 = 400_000;

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub mode: Mode,
    /// arm64: what the CPUs are.
    pub part: Part,
    /// arm64: where the spaces' ASIDs stand.
    pub tags: asids::Tags,
    pub cpus: Vec<Cpu>,
    /// The index of the CPU that runs.
    pub current: usize,
    /// While an NMI handler or the oracle asks on behalf of another CPU: that CPU. Nothing else happens meanwhile.
    pub probe: Option<usize>,
    pub lines: Lines,
    pub memory: Physical,
    pub oracle: Oracle,
    /// Rises with every change of page tables and every walk.
    pub clock: u64,
    /// Numbers page-table stores in the order in which they are issued.
    pub store_sequence: u64,
    pub trace: Option<Trace>,
    pub tally: Tally,
    pub failure: Option<String>,
    /// Operations on a space went on while it retired, so one may find it retired, which the flusher stops by a panic.
    pub may_find_retired: bool,
    /// The ASID generations may be used up, which the flusher stops by a panic.
    pub may_run_out: bool,
    /// One of these has happened: the run ends, and the contract is kept.
    pub cut: bool,
    /// CPUs whose scenario has not ended.
    pub busy: usize,
    pub chooser: Chooser,
    pub record: Vec<(Point, Choice)>,
}

impl Machine {
    /// A machine with CPUs of the given numbers.
    pub(crate) fn new(mode: Mode, numbers: &[usize], chooser: Chooser, trace: bool) -> Self {
        assert!(
            numbers.len() <= 16,
            "the simulated machine has at most 16 CPUs"
        );
        let memory = Physical::new();
        let root = memory.kernel_root();
        let part = part::part();
        Self {
            mode,
            part,
            tags: asids::Tags::default(),
            cpus: numbers
                .iter()
                .map(|number| Cpu::new(*number, root, part))
                .collect(),
            current: 0,
            probe: None,
            lines: Lines::new(trace),
            memory,
            oracle: Oracle::new(),
            clock: 1,
            store_sequence: 0,
            trace: trace.then(Trace::default),
            tally: Tally::default(),
            failure: None,
            may_find_retired: false,
            may_run_out: false,
            cut: false,
            busy: numbers.len(),
            chooser,
            record: Vec::new(),
        }
    }

    /// The CPU that acts: the one that runs, or the one that is asked about.
    #[inline]
    pub(crate) fn acting(&self) -> usize {
        self.probe.unwrap_or(self.current)
    }

    /// Whether the run has ended early.
    pub(crate) fn is_over(&self) -> bool {
        self.failure.is_some() || self.cut
    }

    /// Ends the run: the contract is broken.
    pub(crate) fn fail(&mut self, message: String) {
        if !self.is_over() {
            self.note(|_| format!("VIOLATION: {message}"));
            self.failure = Some(message);
        }
    }

    /// Adds a line to the trace for the acting CPU, if there is a trace.
    #[inline]
    pub(crate) fn note(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let cpu = self.acting();
            self.note_for(cpu, text);
        }
    }

    /// Adds a line to the trace for `cpu`, if there is a trace.
    #[inline]
    pub(crate) fn note_for(&mut self, cpu: usize, text: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let text = text(self);
            let running = self.current == cpu;
            if let Some(trace) = &mut self.trace {
                trace.push(cpu, running, text);
            }
        }
    }

    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}
