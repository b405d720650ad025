//! Whether a flush may stay on this CPU: all rules in one place.
//!
//! | policy | a CPU is spared because | freed tables, changed attributes | use it |
//! |---|---|---|---|
//! | [`Broadcast`](super::Broadcast) | never | broadcast | many threads, few CPUs, devices that share tables |
//! | [`ActiveCpu`](super::ActiveCpu) | it has NEVER loaded the space (since its last ASID) | local too | processes that seldom migrate |
//! | [`Local`](super::Local) | it does not run the space now; its entries are marked stale | broadcast | processes that migrate |
//!
//! A space whose CPUs are spared must not be shared with a device, so sharing one switches this off for it.
//!
//! # `Local`: a count and clean bits
//!
//! A space counts the CPUs that have it loaded. Its mask has a bit for each CPU whose entries are *clean*: not older
//! than any local flush. A CPU without its bit is stale and drops the ASID before it uses it. (The bits are the other
//! way round than in the patch of 2020, so that a process that stays where it is finds nothing to mark: a local flush
//! is O(1).)
//!
//! ```text
//! flush                                     load of the space on another CPU
//! clear the entry                           reserved TTBR0, ISB: nothing of any space can be walked
//! DSB ISH                                   count + 1
//! clear the others' clean bits;             DSB ISH
//!   if there were any: DSB ISH              read the own clean bit
//! read the count                              clear: set it, TLBI ASIDE1, DSB ISH, read it again
//!   0: nothing                              TTBR0 := root and ASID, ISB: walks may begin
//!   1, and it is this CPU: TLBI (local)
//!   else: TLBI ...IS
//! ```
//!
//! Three pairs, each of which writes first and then reads, with a full barrier between, so that at least one side sees
//! the other:
//!
//! * the flush clears a bit and reads the count; the other CPU counts itself and reads its bit: the flush
//!   broadcasts, or the other CPU drops what it has;
//! * the flush clears the entry and reads the bits; the other CPU sets its bit and walks: the flush takes the
//!   bit back, or the walk sees the new entry. So a bit never says *clean* of an entry that is old;
//! * the flush clears the entry and reads the count; the other CPU counts itself and walks: the flush
//!   broadcasts, or the walk sees the new entry.
//!
//! Leaving is the mirror: reserved TTBR0, ISB, DSB (walks in the old context are over), and only then count - 1. So a CPU
//! that is not counted makes no entries.
//!
//! The names in the last column are variants of `variant.rs` that the simulated machine or loom must catch, and tests.
//!
//! | race | why it is safe | shown by |
//! |---|---|---|
//! | TTBR0 write against the count (review, 2020: only an ISB orders it) | count + 1 and the DSB come before the write; the write is after the DSB in program order, and system register writes are not performed before it is complete | simulated machine: `NoActiveBarrier`, `StaleFlushedLate` |
//! | a second thread starts | it is counted before it can make an entry; the count is 2: broadcast | simulated machine: `NoStaleBarrier`; loom: the same; on target: `migration` |
//! | the flush comes from a CPU that does not run the space (reclaim; the race of the first version) | count 1, but this CPU has something else loaded: broadcast | host: `a_space_that_only_this_cpu_runs_is_flushed_here`; on target: `local` |
//! | the thread migrates between deciding and issuing | it can't: the flush holds the pin | `Pending` is not `Send` (a test that must not compile) |
//! | walk caches of freed tables (review, 2020: they may be walked whether or not the ASID is in use) | freed tables and changed attributes always broadcast | simulated machine: `FreedTablesLocal` |
//! | walks still under way in the old context (review, 2020) | the DSB after the ISB, before count - 1 | simulated machine: `CountedOutEarly` |
//! | a rollover while a CPU is between noting its new ASID and loading it | the old space is left first: every switch passes the reserved root (the simulated machine found this one, for all policies) | simulated machine, whole campaigns |
//! | an ASID rollover meanwhile | the ASID is read after the DSB; if it has become old, every CPU drops everything before it loads a space | simulated machine: `AsidReadEarly`, `RolloverNoPendingFlush` |
//! | a stale bit cleared twice, or for a CPU that is counted | an unneeded flush at its next load | simulated machine, whole campaigns |
//!
//! What does a two-thread program gain (the question the review left open)? While both threads run, nothing: the count is
//! 2. Whenever one of them sleeps, everything the other one does is local.
//!
//! # `ActiveCpu`: who has ever loaded it
//!
//! One word says: nobody, this CPU, or several; it becomes *several* for good when a second CPU loads the space, until it
//! gets a new ASID (Roberts, 2025). The CPUs that are spared have never walked its tables with this ASID, so tables
//! may be freed locally too.
//!
//! ```text
//! flush                                     load of the space on another CPU
//! clear the entry                           nobody -> this CPU, or -> several
//! DSB ISH                                   DSB ISH
//! read the word                             TTBR0 := root and ASID, ISB
//!   this CPU: TLBI (local), else TLBI ...IS
//! ```
//!
//! # What the review of 2025 asked
//!
//! Roberts' scheme is the series "Don't broadcast TLBI if mm was only active on local CPU" (linux-arm-kernel, August 2025).
//!
//! | question | answer | shown by |
//! |---|---|---|
//! | Elisei: a virtual CPU moves to another physical one | the hypervisor sets HCR_EL2.FB, which broadcasts its local invalidations: nothing is gained, and nothing lost | the hypervisor's part; nothing here can show it |
//! | Marinas: the core of it is that P0 stores the entry, DSB, reads the word, and P1 stores the word, DSB, walks | each side writes first and then reads | simulated machine: `ActiveReadEarly`, `NoActiveBarrier` |
//! | Marinas: do ISH and ISHST differ enough to read the word twice? | not taken up: always DSB ISH, and one read | as above |
//! | Shi: why not a mask of CPUs, which would also serve to interrupt few of them? | one load tells `ActiveCpu`; `Local` has a mask, of clean bits. Nobody is interrupted: what is not local is broadcast | single-threaded processes: `sim/tests/single_threaded.rs` |
//! | Huang: the gain is gone once a process has moved | true of `ActiveCpu` until its next ASID; `Local` is for such processes | the same: `active_cpu_disturbs_nobody_until_a_process_moves`, `local_disturbs_nobody_when_processes_move` |
//! | Marinas, Roberts: where does it pay? | 32 database servers that make snapshots: +4.5 % (Huang); kernel builds: 2.2 % less time in the kernel, the same on the clock; mprotect loops: more | not measured here |
//! | second version: what a rollover resets | the word, once no CPU has anything of the old ASID: freed tables are flushed locally too | simulated machine, whole campaigns |
//!
//! # CPUs that share a TLB
//!
//! With CnP set in its TTBR a CPU may use what another one has cached, and an invalidation that is not broadcast is promised
//! for the own TLB only. So no policy may rely on it, and `Broadcast` needs it too: after a rollover each CPU drops everything
//! from its own TLB. Such a CPU is refused at `online`, whatever the policy (simulated machine: `CnpIgnored`), and TTBR0 is
//! always loaded with CnP clear.

use super::{Instructions, Tlbi, operand::by_asid};
use crate::{
    atomic::Ordering::{AcqRel, Acquire, Relaxed},
    coverage::{Branch, took},
    request::Request,
    space::{ACTIVE_CPUS, Space},
    variant::{Broken, broken},
};

/// Which policy a flusher follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Kind {
    /// Always broadcast.
    Broadcast,
    /// Spare CPUs that have never loaded the space.
    ActiveCpu,
    /// Spare CPUs that do not run the space now.
    Local,
}

/// A policy as a type, see [the module](self).
pub trait Policy: Sync + 'static {
    /// Which one.
    const KIND: Kind;
}

/// Always broadcast.
#[derive(Debug)]
pub struct AlwaysBroadcast;
/// Spare CPUs that have never loaded the space.
#[derive(Debug)]
pub struct NeverLoaded;
/// Spare CPUs that do not run the space now.
#[derive(Debug)]
pub struct NotRunning;

impl Policy for AlwaysBroadcast {
    const KIND: Kind = Kind::Broadcast;
}
impl Policy for NeverLoaded {
    const KIND: Kind = Kind::ActiveCpu;
}
impl Policy for NotRunning {
    const KIND: Kind = Kind::Local;
}

/// Where a flush goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// Nowhere: no CPU has the space loaded.
    Nowhere,
    /// To this CPU.
    Here,
    /// To all.
    Everywhere,
}

/// `ActiveCpu`: more than one CPU has loaded the space. Else the CPU's number plus one, or 0.
const SEVERAL: u64 = ACTIVE_CPUS;

/// Where to flush `space` on CPU `me`, which has it loaded or not. The page-table stores come before; the caller is pinned
/// until the invalidation is issued.
#[inline]
pub(super) fn place<I: Instructions, const W: usize>(
    kind: Kind,
    space: &Space<W>,
    me: usize,
    loaded_here: bool,
    request: &Request,
) -> Where {
    match kind {
        Kind::Broadcast => Where::Everywhere,
        Kind::ActiveCpu => {
            let early = broken(Broken::ActiveReadEarly).then(|| space.active.load(Acquire));
            // The stores reach the walkers, and the word is read after that.
            I::dsb_ish();
            if early.unwrap_or_else(|| space.active.load(Acquire)) == me as u64 + 1 {
                Where::Here
            } else {
                Where::Everywhere
            }
        }
        Kind::Local if request.reaches_lazy() && !broken(Broken::FreedTablesLocal) => {
            I::dsb_ishst();
            Where::Everywhere
        }
        Kind::Local => {
            let early = broken(Broken::NoStaleBarrier).then(|| space.active.load(Acquire));
            let mark = || space.cpus.keep_only(loaded_here.then_some(me));
            // The stores reach the walkers before the bits are looked at.
            let marked = broken(Broken::MarksBeforeStores).then(mark);
            I::dsb_ish();
            if !broken(Broken::StaleNotMarked) && marked.unwrap_or_else(mark) {
                // The marks are visible before the count is read. Where there was nothing to mark, the barrier above
                // has ordered the stores before the count.
                I::dsb_ish();
            }
            match early.unwrap_or_else(|| space.active.load(Acquire)) {
                0 => Where::Nowhere,
                1 if loaded_here => Where::Here,
                _ => Where::Everywhere,
            }
        }
    }
}

/// Counts this CPU in, before it loads the space, and drops stale entries. The reserved root is loaded where the policy
/// needs that.
#[inline]
pub(super) fn enter<I: Instructions, const W: usize>(
    kind: Kind,
    space: &Space<W>,
    me: usize,
    asid: u16,
) -> bool {
    match kind {
        Kind::Broadcast => false,
        Kind::ActiveCpu => {
            let mine = me as u64 + 1;
            let before = match space.active.compare_exchange(0, mine, AcqRel, Acquire) {
                Ok(_) => 0,
                Err(before) => before,
            };
            if before != 0 && before & ACTIVE_CPUS != mine {
                // Once it is several it stays so; the other bits are kept.
                space.active.fetch_or(SEVERAL, AcqRel);
            }
            if !broken(Broken::NoActiveBarrier) {
                I::dsb_ish();
            }
            false
        }
        Kind::Local => {
            let early = broken(Broken::StaleTestedEarly) && space.cpus.contains(me);
            space.active.fetch_add(1, AcqRel);
            if !broken(Broken::NoActiveBarrier) {
                I::dsb_ish();
            }
            let mut stale = false;
            while !early && !space.cpus.contains(me) {
                took(Branch::StaleFlushed);
                stale = true;
                // Set before anything can be walked, and visible then: a flush that misses the bit is one whose entry the
                // walk sees. A flush that clears it again from here on finds this CPU counted.
                space.cpus.insert(me);
                if !broken(Broken::StaleFlushedLate) {
                    drop_own::<I>(asid);
                }
            }
            stale
        }
    }
}

/// Drops everything of an ASID from this CPU. The barrier is also one for what was stored before.
pub(super) fn drop_own<I: Instructions>(asid: u16) {
    I::tlbi(Tlbi::Aside1, by_asid(asid));
    I::dsb_ish();
}

/// Counts this CPU out, after the reserved root was loaded.
#[inline]
pub(super) fn leave<I: Instructions, const W: usize>(kind: Kind, space: &Space<W>) {
    if kind == Kind::Local {
        // Walks in the old context are over (Arm ARM: a DSB after the ISB completes them).
        I::dsb_ish();
        space.active.fetch_sub(1, AcqRel);
    }
}

/// The space got a new ASID, and no CPU has anything of an earlier one: nobody has loaded it.
pub(super) fn forgotten<const W: usize>(kind: Kind, space: &Space<W>) {
    if kind == Kind::ActiveCpu {
        space.active.fetch_and(!ACTIVE_CPUS, AcqRel);
    }
}

/// Nobody runs the space any more, and nobody will.
pub(super) fn retire<const W: usize>(space: &Space<W>) {
    space.active.store(0, Relaxed);
    space.cpus.clear();
}
