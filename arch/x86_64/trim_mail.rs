//! Trim requests: a space's address in a CPU's mailbox.

use crate::{
    atomic::{
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
        fence,
    },
    slot::{Asked, CpuSlot},
    space::Space,
    variant::{Broken, broken},
};

/// Asks the CPU of `slot` to leave the mask of `space`, unless it has another such request. The owner takes it when it
/// next serves or switches: no interrupt is sent.
pub(super) fn post<const W: usize>(slot: &CpuSlot, space: &Space<W>) {
    if slot.mail.trim.load(Relaxed) != 0 {
        return;
    }
    // Counted before the address is posted: `retire` and `drop` wait for, or stop at, a count that is not zero. And
    // before retirement is looked at, so that a flush that is late does not post what `retire` has searched for:
    //
    // late flush                 retire
    // trims += 1                 RETIRED
    // full barrier               full barrier
    // RETIRED? then take back    trims == 0? then done
    space.trims.fetch_add(1, AcqRel);
    fence(SeqCst);
    if space.domain.is_retired() && !broken(Broken::TrimPostedLate) {
        space.trims.fetch_sub(1, Release);
        return;
    }
    let address = core::ptr::from_ref(space).expose_provenance() as u64;
    let posted = slot.mail.trim.compare_exchange(0, address, AcqRel, Relaxed);
    if posted.is_err() {
        space.trims.fetch_sub(1, Release);
    } else {
        // No interrupt: whenever it next serves.
        slot.mail.pending.fetch_or(Asked::MORE, Release);
    }
}

/// Takes the trim request of `slot`, if there is one, and lets `answer` act on the space. Called by the slot's
/// owner, or on behalf of a CPU that is stopped.
pub(super) fn take<const W: usize>(slot: &CpuSlot, answer: impl FnOnce(&Space<W>)) {
    let address = slot.mail.trim.swap(0, AcqRel);
    if address == 0 {
        return;
    }
    // SAFETY: 1. `post` put the address of a `Space<W>` there and exposed it. 2. It counted the request in `trims`
    //    before; neither `retire` says `Ok` nor does `drop` return before that count is 0. 3. Only the swap's winner
    //    decrements it, below, and that is the last access.
    let space = unsafe { &*core::ptr::with_exposed_provenance::<Space<W>>(address as usize) };
    answer(space);
    space.trims.fetch_sub(1, Release);
}

/// Takes a trim request for `space` back, if it is still in the mailbox.
pub(super) fn retract<const W: usize>(slot: &CpuSlot, space: &Space<W>) -> bool {
    let address = core::ptr::from_ref(space).expose_provenance() as u64;
    let taken = slot.mail.trim.load(Acquire) == address
        && slot
            .mail
            .trim
            .compare_exchange(address, 0, AcqRel, Relaxed)
            .is_ok();
    if taken {
        space.trims.fetch_sub(1, Release);
    }
    taken
}
