//! ASIDs for spaces, many more spaces than ASIDs: a generation-based allocator.
//!
//! A space's tag is a generation and an ASID. While the generation is the allocator's, the ASID is the space's alone. When
//! ASIDs run out a new generation begins (*rollover*): all tags become old, except that what CPUs run at that moment is
//! *reserved* and keeps its ASID, and each CPU drops everything from its TLB before it next loads a space (Linux
//! arch/arm64/mm/context.c; its public TLA+ model names the invariants).
//!
//! ```text
//! switch, fast path              rollover, under the lock
//! tag of this generation?        generation + 1
//! active: old -> tag             active of each CPU: -> 0, remembered as reserved
//!   (compare-exchange)           flush pending on all CPUs
//! ```
//!
//! The compare-exchange fails on 0: a switch that overlaps a rollover takes the lock and looks again. One that
//! succeeds came before the exchange to 0, which then finds its tag and reserves it.

use crate::{
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
        const_unless_loom, zeroed,
    },
    coverage::{Branch, took},
    cpus::CpuMask,
    platform::Platform,
    polling_lock::PollingLock,
    slot::Loaded,
    space::Space,
    variant::{Broken, broken},
};

/// ASID 0 is loaded with the reserved root.
pub(crate) const RESERVED: u16 = 0;

/// The step from one generation to the next; the ASID is below.
const GENERATION: u64 = 1 << 16;

/// The allocator: one bit an ASID, in `A` words (4 for 8-bit ASIDs, 1024 for 16-bit ones), and one bit a CPU.
#[derive(Debug)]
pub(crate) struct Asids<const W: usize, const A: usize> {
    generation: AtomicU64,
    lock: PollingLock,
    /// The rest is used under the lock.
    taken: [AtomicU64; A],
    pinned: [AtomicU64; A],
    pins: AtomicU64,
    hint: AtomicU64,
    /// CPUs that have not yet flushed since the last rollover. Also read without the lock, by nobody but its owner.
    flush_pending: CpuMask<W>,
}

/// A space is active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activated {
    pub(crate) asid: u16,
    /// It may have got a new tag, whose visibility nothing has ordered before the walks to come.
    pub(crate) slowly: bool,
}

/// All ASIDs are pinned that may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyPins;

impl<const W: usize, const A: usize> Asids<W, A> {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            assert!(A >= 1 && A <= 1024, "1 to 1024 words: up to 65536 ASIDs");
            Self {
                generation: AtomicU64::new(GENERATION),
                lock: PollingLock::new(),
                taken: zeroed!(),
                pinned: zeroed!(),
                pins: AtomicU64::new(0),
                hint: AtomicU64::new(1),
                flush_pending: CpuMask::new(),
            }
        }
    }

    /// Begins so many rollovers before the last generation; at the first one if it is not said.
    #[cfg(any(test, loom, feature = "_sim"))]
    pub(crate) fn leave_generations(&self, left: Option<u64>) {
        if let Some(left) = left {
            let first = 0_u64.wrapping_sub((left + 1) * GENERATION);
            self.generation.store(first, Relaxed);
        }
    }

    /// The ASID of a tag.
    #[inline(always)]
    pub(crate) const fn asid(tag: u64) -> u16 {
        tag as u16
    }

    #[inline(always)]
    fn is_current(&self, tag: u64) -> bool {
        (tag ^ self.generation.load(Relaxed)) < GENERATION
    }

    /// Gives `space` a valid ASID and notes it as active on `cpu`. `limit` is the number of
    /// ASIDs, `flush_all` drops everything from this CPU's TLB, `forgotten` is called when the space got
    /// another ASID and no CPU has anything of an earlier one. Called by `cpu` with interrupts off.
    #[inline]
    pub(crate) fn activate<P: Platform>(
        &self,
        space: &Space<W>,
        cpu: usize,
        limit: u64,
        flush_all: impl FnOnce(),
        forgotten: impl FnOnce(),
    ) -> Activated {
        let active = &P::slot(cpu).mail.active_asid;
        let (now, before) = (space.tag.load(Relaxed), active.load(Relaxed));
        // Acquire: a space whose tag is current was given it before.
        if before != 0
            && self.is_current(now)
            && active
                .compare_exchange(before, now, AcqRel, Relaxed)
                .is_ok()
        {
            took(Branch::AsidFast);
            return Activated {
                asid: Self::asid(now),
                slowly: false,
            };
        }
        self.activate_slowly::<P>(space, cpu, limit, flush_all, forgotten)
    }

    #[cold]
    fn activate_slowly<P: Platform>(
        &self,
        space: &Space<W>,
        cpu: usize,
        limit: u64,
        flush_all: impl FnOnce(),
        forgotten: impl FnOnce(),
    ) -> Activated {
        took(Branch::AsidSlow);
        let _held = self.lock.lock(P::relax);
        let mut now = space.tag.load(Relaxed);
        let mut moved = false;
        if !self.is_current(now) {
            let (fresh, kept) = self.renew::<P>(now, space.is_shared(), limit);
            moved = !kept;
            now = fresh;
        }
        if self.flush_pending.contains(cpu) {
            // Before this CPU can load an ASID of the new generation (invariant 8).
            took(Branch::AsidPendingFlush);
            if !broken(Broken::RolloverNoPendingFlush) {
                flush_all();
            }
            self.flush_pending.remove(cpu);
        }
        if moved && self.flush_pending.is_empty() {
            forgotten();
        }
        // Last: from here on another CPU finds the tag current without the lock.
        space.tag.store(now, Release);
        P::slot(cpu).mail.active_asid.store(now, Relaxed);
        Activated {
            asid: Self::asid(now),
            slowly: true,
        }
    }

    /// A tag of this generation for a space that has `old`, and whether its ASID is still its own: then what TLBs hold
    /// of it is still the space's.
    fn renew<P: Platform>(&self, old: u64, pinned: bool, limit: u64) -> (u64, bool) {
        let generation = self.generation.load(Relaxed);
        if old != 0 {
            let same = generation | u64::from(Self::asid(old));
            if self.was_reserved::<P>(old, same) {
                took(Branch::AsidReserved);
                return (same, true);
            }
            // Its own pin, not that of a space that has this ASID since the tag became old.
            if pinned {
                return (same, true);
            }
            // Nobody took it since the rollover. Its old entries are dropped by each CPU's pending flush.
            if !get(&self.taken, Self::asid(old)) {
                set(&self.taken, Self::asid(old));
                return (same, false);
            }
        }
        let free = self.next_free(limit).unwrap_or_else(|| {
            took(Branch::AsidRollover);
            self.roll_over::<P>();
            self.next_free(limit).unwrap_or_else(|| {
                panic!("shootdown: {limit} ASIDs do not suffice for the CPUs and pinned spaces")
            })
        });
        set(&self.taken, free);
        self.hint.store(u64::from(free), Relaxed);
        (self.generation.load(Relaxed) | u64::from(free), false)
    }

    /// Whether a CPU had `old` active at the last rollover. Then it has `new` instead, on each such CPU.
    fn was_reserved<P: Platform>(&self, old: u64, new: u64) -> bool {
        let mut hit = false;
        for cpu in 0..P::CPUS {
            let reserved = &P::slot(cpu).mail.reserved_asid;
            // All of them, not only the first: they would otherwise be taken for old at the next rollover.
            if reserved.load(Relaxed) == old {
                hit = true;
                reserved.store(new, Relaxed);
            }
        }
        hit
    }

    fn next_free(&self, limit: u64) -> Option<u16> {
        let limit = limit.min(64 * A as u64);
        let hint = self.hint.load(Relaxed).max(1);
        (hint..limit)
            .chain(1..hint.min(limit))
            .map(|asid| asid as u16)
            .find(|asid| !get(&self.taken, *asid))
    }

    fn roll_over<P: Platform>(&self) {
        let next = self.generation.load(Relaxed).wrapping_add(GENERATION);
        // After 2^48 rollovers: an old tag could be taken for a new one from here on, and that of a space which was never
        // loaded for one with the reserved ASID.
        assert!(
            next != 0 || broken(Broken::GenerationsWrap),
            "shootdown: the ASID generations are used up"
        );
        self.generation.store(next, Relaxed);
        for (taken, pinned) in self.taken.iter().zip(&self.pinned) {
            taken.store(pinned.load(Relaxed), Relaxed);
        }
        for cpu in 0..P::CPUS {
            let mail = &P::slot(cpu).mail;
            // Pairs with the compare-exchange in `activate`: what it has put there is found, and it finds 0 from now on.
            let active = mail.active_asid.swap(0, SeqCst);
            // Rolled over twice without a switch: what it runs was remembered the first time.
            let runs = if active == 0 {
                mail.reserved_asid.load(Relaxed)
            } else {
                active
            };
            if runs != 0 && !broken(Broken::RolloverForgetsReserved) {
                set(&self.taken, Self::asid(runs));
            }
            mail.reserved_asid.store(runs, Relaxed);
            // One that is not online drops everything when it comes.
            if P::slot(cpu).seen.loaded.load(Acquire) != Loaded::OFFLINE.0 {
                self.flush_pending.insert(cpu);
            }
        }
        self.hint.store(1, Relaxed);
    }

    /// Says that `cpu`, which goes offline, runs no space any more and will flush before it comes back.
    pub(crate) fn forget<P: Platform>(&self, cpu: usize) {
        let _held = self.lock.lock(P::relax);
        P::slot(cpu).mail.active_asid.store(0, Relaxed);
        P::slot(cpu).mail.reserved_asid.store(0, Relaxed);
        self.flush_pending.remove(cpu);
    }

    /// Gives the space an ASID that it keeps over rollovers, and marks it as shared with a device. At most as many as
    /// leave one for each CPU and one to spare.
    pub(crate) fn pin<P: Platform>(&self, space: &Space<W>, limit: u64) -> Result<(), TooManyPins> {
        let _held = self.lock.lock(P::relax);
        if space.is_shared() {
            return Ok(());
        }
        let most = limit.min(64 * A as u64) - 1 - P::CPUS as u64;
        let pins = self.pins.load(Relaxed);
        if pins + 1 >= most {
            return Err(TooManyPins);
        }
        let mut now = space.tag.load(Relaxed);
        if !self.is_current(now) {
            now = self.renew::<P>(now, false, limit).0;
            space.tag.store(now, Release);
        }
        set(&self.pinned, Self::asid(now));
        self.pins.store(pins + 1, Relaxed);
        space.share();
        Ok(())
    }

    /// Takes the space's pin back, if it has one.
    pub(crate) fn unpin<P: Platform>(&self, space: &Space<W>) {
        let _held = self.lock.lock(P::relax);
        if space.is_shared() {
            clear(&self.pinned, space.tag());
            self.pins.store(self.pins.load(Relaxed) - 1, Relaxed);
        }
    }

    #[cfg(all(feature = "_sim", not(loom)))]
    pub(crate) fn words(&self, name: &mut dyn FnMut(&'static str, &core::sync::atomic::AtomicU64)) {
        name("asid generation", self.generation.native());
        name("asid lock", self.lock.word());
        for word in self.taken.iter().chain(&self.pinned) {
            name("asids", word.native());
        }
        name("asid pins", self.pins.native());
        name("asid hint", self.hint.native());
        for word in &self.flush_pending.words {
            name("flush_pending", word.native());
        }
        name("flush_pending summary", self.flush_pending.summary.native());
    }
}

fn get(bits: &[AtomicU64], asid: u16) -> bool {
    bits[usize::from(asid / 64)].load(Relaxed) >> (asid % 64) & 1 != 0
}

fn set(bits: &[AtomicU64], asid: u16) {
    let word = &bits[usize::from(asid / 64)];
    word.store(word.load(Acquire) | 1 << (asid % 64), Relaxed);
}

fn clear(bits: &[AtomicU64], asid: u16) {
    let word = &bits[usize::from(asid / 64)];
    word.store(word.load(Acquire) & !(1 << (asid % 64)), Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use super::*;
    use crate::slot::CpuSlot;

    struct OneCpu;

    // SAFETY: one CPU, one thread, no interrupts.
    unsafe impl Platform for OneCpu {
        const CPUS: usize = 1;
        fn current_cpu() -> usize {
            0
        }
        fn pin() {}
        fn unpin() {}
        fn irq_save() -> usize {
            0
        }
        fn irq_restore(_: usize) {}
        fn slot(_: usize) -> &'static CpuSlot {
            static SLOT: CpuSlot = CpuSlot::new();
            &SLOT
        }
        fn relax() {}
    }

    /// After the last generation an old tag could be taken for a new one: the allocator stops instead.
    #[test]
    fn generations_do_not_wrap() {
        let asids = Asids::<1, 1>::new();
        asids.leave_generations(Some(1));
        let activate = |space: &Space<1>| asids.activate::<OneCpu>(space, 0, 4, || (), || ()).asid;
        let spaces: [Space<1>; 9] = core::array::from_fn(|_| Space::new(0));
        // ASIDs 1 to 3, then one rollover into the last generation, which has two to spare.
        for space in &spaces[..5] {
            assert!((1..4).contains(&activate(space)));
        }
        let last = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for space in &spaces[5..] {
                activate(space);
            }
        }));
        let message = *last.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(message, "shootdown: the ASID generations are used up");
    }
}
