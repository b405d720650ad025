//! The global PCIDs: those that the CPUs' own slots leave.
//!
//! ```text
//! free ──allocate──▶ taken ──release──▶ freed ──┐
//!   ▲                                           │ reset: out of the lock, everything that is not global is
//!   └──────────────── resetting ◀───────────────┘ flushed on all CPUs
//! ```
//!
//! A PCID that was given back may have entries on any CPU until the reset (Linux arch/x86/mm/tlb.c, whose allocator
//! could give one PCID to two spaces when none was left: here a space is refused then).

use crate::{
    atomic::{AtomicU64, Ordering::Relaxed, const_unless_loom, zeroed},
    coverage::{Branch, took},
    polling_lock::PollingLock,
    variant::{Broken, broken},
    x86_64::pcid::SLOTS,
};

/// The first PCID that no CPU's own slot uses.
const FIRST_GLOBAL: u16 = SLOTS as u16 + 1;
/// One past the last one: as in Linux, 4095 stays unused.
const END: u16 = 4095;
/// How many there are.
pub(in super::super) const GLOBAL_PCIDS: u16 = END - FIRST_GLOBAL;

/// loom's models have few PCIDs.
const WORDS: usize = if cfg!(loom) { 1 } else { 64 };

/// Who has the global PCIDs, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct PcidUse {
    /// How many there are; 0 without PCIDs.
    pub total: u64,
    /// How many spaces have one now.
    pub in_use: u64,
    /// How often a space has got one.
    pub promoted: u64,
    /// How often a space did not get one since none was left.
    pub refused: u64,
    /// How often PCIDs that were given back were flushed and became free.
    pub resets: u64,
    /// A space that more CPUs than this run gets one, as things stand.
    pub threshold: u64,
}

/// The allocator. All but `available` and `total` is used under the lock.
#[derive(Debug)]
pub(super) struct GlobalPcids {
    lock: PollingLock,
    total: AtomicU64,
    /// Those that are free or will be after a reset.
    available: AtomicU64,
    /// Not free: taken, freed or being reset.
    taken: [AtomicU64; WORDS],
    /// Given back, not yet flushed.
    freed: [AtomicU64; WORDS],
    /// Given back, and being flushed.
    resetting: [AtomicU64; WORDS],
    /// 1 while a CPU flushes those.
    reset: AtomicU64,
    promoted: AtomicU64,
    refused: AtomicU64,
    resets: AtomicU64,
}

/// What the allocator has found.
enum Found {
    Pcid(u16),
    /// None is free, but some will be once everything that is not global was flushed.
    AfterReset,
    None,
}

impl GlobalPcids {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            Self {
                lock: PollingLock::new(),
                total: AtomicU64::new(0),
                available: AtomicU64::new(0),
                taken: zeroed!(),
                freed: zeroed!(),
                resetting: zeroed!(),
                reset: AtomicU64::new(0),
                promoted: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                resets: AtomicU64::new(0),
            }
        }
    }

    /// Gives out `total` PCIDs. Called once, before any CPU is online.
    pub(super) fn configure(&self, total: u16) {
        self.available.store(u64::from(total), Relaxed);
        self.total.store(u64::from(total), Relaxed);
    }

    /// How many may be had, and how many there are. The former may change at once.
    #[inline]
    pub(super) fn available(&self) -> (u64, u64) {
        (self.available.load(Relaxed), self.total.load(Relaxed))
    }

    /// A PCID of which no TLB has an entry, or `None` if all are in use. `flush_all` drops everything that is not global
    /// on all CPUs; `relax` is called while the lock is taken. Called with interrupts off.
    pub(super) fn allocate(
        &self,
        mut flush_all: impl FnMut(),
        mut relax: impl FnMut(),
    ) -> Option<u16> {
        // Another CPU may take what a reset has freed, and more may be freed meanwhile.
        loop {
            let found = {
                let _held = self.lock.lock(&mut relax);
                self.find()
            };
            match found {
                Found::Pcid(pcid) => return Some(pcid),
                Found::None => {
                    took(Branch::PromotionRefused);
                    return None;
                }
                Found::AfterReset => {
                    // Not under the lock: it waits for all CPUs.
                    if !broken(Broken::PcidReusedEarly) {
                        flush_all();
                    }
                    let _held = self.lock.lock(&mut relax);
                    self.end_reset();
                }
            }
        }
    }

    /// Takes the lowest free PCID, or begins a reset. Under the lock.
    fn find(&self) -> Found {
        let total = self.total.load(Relaxed);
        let mut resettable = false;
        for index in 0..Self::words(total) {
            let taken = self.taken[index].load(Relaxed);
            let free = Self::valid(index, total) & !taken;
            if free != 0 {
                let bit = free.trailing_zeros();
                self.taken[index].store(taken | 1 << bit, Relaxed);
                self.available
                    .store(self.available.load(Relaxed) - 1, Relaxed);
                self.promoted
                    .store(self.promoted.load(Relaxed) + 1, Relaxed);
                return Found::Pcid(FIRST_GLOBAL + (64 * index) as u16 + bit as u16);
            }
            resettable |= self.freed[index].load(Relaxed) != 0;
        }
        if broken(Broken::PcidAliased) && total != 0 {
            return Found::Pcid(FIRST_GLOBAL);
        }
        // One reset at a time: it frees what was given back before it began to flush, and nothing else. The space asks
        // again when it is next flushed.
        if !resettable || self.reset.load(Relaxed) != 0 {
            self.refused.store(self.refused.load(Relaxed) + 1, Relaxed);
            return Found::None;
        }
        self.reset.store(1, Relaxed);
        for index in 0..Self::words(total) {
            self.resetting[index].store(self.freed[index].load(Relaxed), Relaxed);
            self.freed[index].store(0, Relaxed);
        }
        Found::AfterReset
    }

    /// What was being reset is free. Under the lock.
    fn end_reset(&self) {
        took(Branch::PcidReset);
        self.resets.store(self.resets.load(Relaxed) + 1, Relaxed);
        self.reset.store(0, Relaxed);
        for index in 0..Self::words(self.total.load(Relaxed)) {
            let reset = self.resetting[index].load(Relaxed);
            let taken = self.taken[index].load(Relaxed);
            self.taken[index].store(taken & !reset, Relaxed);
        }
    }

    /// Takes back `pcid`, which no CPU has loaded any more. It may still have entries in TLBs.
    pub(super) fn release(&self, pcid: u16, relax: impl FnMut()) {
        let (index, bit) = Self::place(pcid);
        let _held = self.lock.lock(relax);
        let freed = self.freed[index].load(Relaxed);
        if freed & bit == 0 {
            self.freed[index].store(freed | bit, Relaxed);
            self.available
                .store(self.available.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Takes back `pcid`, which no CPU has ever loaded since it was allocated.
    pub(super) fn return_unused(&self, pcid: u16, relax: impl FnMut()) {
        let (index, bit) = Self::place(pcid);
        let _held = self.lock.lock(relax);
        self.taken[index].store(self.taken[index].load(Relaxed) & !bit, Relaxed);
        self.available
            .store(self.available.load(Relaxed) + 1, Relaxed);
        self.promoted
            .store(self.promoted.load(Relaxed) - 1, Relaxed);
    }

    /// The figures as they stand; they may change while they are read.
    pub(super) fn usage(&self, threshold: u64) -> PcidUse {
        let (available, total) = self.available();
        PcidUse {
            total,
            in_use: total.saturating_sub(available),
            promoted: self.promoted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            resets: self.resets.load(Relaxed),
            threshold,
        }
    }

    /// Word and bit of a PCID.
    const fn place(pcid: u16) -> (usize, u64) {
        let number = (pcid - FIRST_GLOBAL) as usize;
        (number / 64, 1 << (number % 64))
    }

    /// How many words `total` PCIDs take.
    fn words(total: u64) -> usize {
        (total as usize).div_ceil(64).min(WORDS)
    }

    /// The bits of word `index` that stand for PCIDs.
    const fn valid(index: usize, total: u64) -> u64 {
        let here = total - 64 * index as u64;
        if here >= 64 {
            u64::MAX
        } else {
            (1 << here) - 1
        }
    }

    #[cfg(all(feature = "_sim", not(loom)))]
    pub(super) fn words_by_name(&self, name: crate::inspect::Name<'_>) {
        name("pcids.lock", self.lock.word());
        name("pcids.available", self.available.native());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::{cell::Cell, vec::Vec};

    use super::*;

    fn pcids(total: u16) -> GlobalPcids {
        let pcids = GlobalPcids::new();
        pcids.configure(total);
        pcids
    }

    fn must_not_flush() {
        panic!("there are free PCIDs, or none was given back");
    }

    fn alone() {
        panic!("nobody else has the lock");
    }

    #[test]
    fn each_is_given_out_once_and_then_none() {
        let pcids = pcids(GLOBAL_PCIDS);
        let all: Vec<u16> = core::iter::from_fn(|| pcids.allocate(must_not_flush, alone)).collect();
        assert!(all.iter().copied().eq(7..=4094));
        assert_eq!(all.len(), 4088);
        let usage = pcids.usage(0);
        assert_eq!((usage.total, usage.in_use), (4088, 4088));
        assert_eq!((usage.promoted, usage.refused, usage.resets), (4088, 1, 0));
    }

    #[test]
    fn what_was_given_back_is_flushed_before_it_is_used_again() {
        let pcids = pcids(2);
        let flushes = Cell::new(0);
        let allocate = || pcids.allocate(|| flushes.set(flushes.get() + 1), alone);
        assert_eq!(allocate(), Some(7));
        pcids.release(7, alone);
        // One is free: no reset yet.
        assert_eq!((allocate(), flushes.get()), (Some(8), 0));
        assert_eq!((allocate(), flushes.get()), (Some(7), 1));
        assert_eq!((allocate(), flushes.get()), (None, 1));
        pcids.release(8, alone);
        pcids.release(7, alone);
        assert_eq!((allocate(), flushes.get()), (Some(7), 2));
        assert_eq!((allocate(), flushes.get()), (Some(8), 2));
        assert_eq!(pcids.usage(0).resets, 2);
    }

    #[test]
    fn what_is_given_back_during_a_reset_waits_for_the_next_one() {
        let pcids = pcids(2);
        assert_eq!(pcids.allocate(must_not_flush, alone), Some(7));
        assert_eq!(pcids.allocate(must_not_flush, alone), Some(8));
        pcids.release(7, alone);
        let during = || {
            pcids.release(8, alone);
            // Another CPU that asks meanwhile is refused, and begins no second reset.
            assert_eq!(pcids.allocate(must_not_flush, alone), None);
        };
        assert_eq!(pcids.allocate(during, alone), Some(7));
        let flushed = Cell::new(false);
        assert_eq!(pcids.allocate(|| flushed.set(true), alone), Some(8));
        assert!(flushed.get());
    }

    #[test]
    fn one_that_was_never_loaded_needs_no_flush() {
        let pcids = pcids(1);
        assert_eq!(pcids.allocate(must_not_flush, alone), Some(7));
        pcids.return_unused(7, alone);
        assert_eq!(pcids.usage(0).promoted, 0);
        assert_eq!(pcids.allocate(must_not_flush, alone), Some(7));
    }

    #[test]
    fn without_pcids_there_is_none() {
        assert_eq!(pcids(0).allocate(must_not_flush, alone), None);
    }
}
