//! A CPU: its slot, its interrupt line, CR3 and a TLB.

use std::sync::{
    Mutex,
    atomic::{AtomicU64 as Private, Ordering::Relaxed},
};

use loom::sync::atomic::AtomicU64;
use shootdown::{
    CpuSlot,
    x86_64::{Invlpgb, kvm::StealTime},
};

use crate::page::{PAGES, Page};

/// The root table without user pages.
pub const KERNEL_ROOT: u64 = 0x10_0000;
/// The root table of the space that has the user pages.
pub const ROOT_A: u64 = 0x20_0000;
/// That of the other space.
pub const ROOT_B: u64 = 0x30_0000;

/// The kernel's, two of the CPU's own, and the global ones.
const PCIDS: usize = 3 + GLOBAL_PCIDS;
/// How many global PCIDs there are.
pub const GLOBAL_PCIDS: usize = 2;
/// The first global PCID.
const FIRST_GLOBAL: usize = 7;

/// Where the TLB holds what belongs to `pcid`.
pub const fn pcid_index(pcid: usize) -> usize {
    if pcid < FIRST_GLOBAL {
        pcid
    } else {
        pcid - FIRST_GLOBAL + 3
    }
}

/// What a CPU does by itself just before each instruction that changes what it translates by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// It speculates through what it has loaded.
    Speculation,
    /// It takes an NMI whose handler reads user memory if it may.
    Nmi,
}

/// What belongs to one CPU. But for the slot, the steal time and the interrupt line only the CPU itself touches it.
pub struct Cpu {
    pub slot: CpuSlot,
    /// What it shares with KVM.
    pub steal_time: StealTime,
    /// The line of the flush interrupt.
    pub interrupt: AtomicU64,
    pub cr3: Private,
    /// By PCID and page; 0 where nothing is cached. The kernel's page is global and stands in PCID 0.
    pub tlb: [[Private; PAGES]; PCIDS],
    /// Counts the broadcasts that have dropped something here: what a walk that overlaps with one finds is dropped too,
    /// and a later walk sees what the initiator had made visible.
    pub broadcasts: AtomicU64,
    /// What this CPU has broadcast and not waited for, if that takes effect late.
    pub issued: Mutex<Vec<Invlpgb>>,
    /// Turns of waiting loops so far.
    pub turns: Private,
    /// Whether this CPU's read-modify-writes are no full barriers.
    pub weak: Private,
}

impl Cpu {
    pub fn new() -> Self {
        Self {
            slot: CpuSlot::new(),
            steal_time: StealTime::new(),
            interrupt: AtomicU64::new(0),
            cr3: Private::new(KERNEL_ROOT),
            tlb: Default::default(),
            broadcasts: AtomicU64::new(0),
            issued: Mutex::new(Vec::new()),
            turns: Private::new(0),
            weak: Private::new(0),
        }
    }

    fn pcid(&self) -> usize {
        pcid_index((self.cr3.load(Relaxed) & 0xfff) as usize)
    }

    /// The root table that is loaded.
    pub fn root(&self) -> u64 {
        self.cr3.load(Relaxed) & !0xfff
    }

    /// What the TLB holds of `page`, 0 if nothing.
    pub fn cached(&self, page: Page) -> &Private {
        let pcid = if page == Page::Kernel { 0 } else { self.pcid() };
        &self.tlb[pcid][page as usize]
    }
}
