//! The one place where a CPU's loaded space is a pointer.

use core::ptr::NonNull;

use crate::{
    atomic::Ordering::Relaxed,
    slot::{CpuSlot, Loaded},
    space::Space,
};

/// Notes that `space` is what this CPU loads.
#[inline(always)]
pub(crate) fn set<const W: usize>(my: &CpuSlot, space: &Space<W>) {
    my.space.set(core::ptr::from_ref(space).cast());
}

/// The space that this CPU has loaded, lazy or not. Called by the slot's owner with interrupts off.
#[inline(always)]
pub(crate) fn get<const W: usize>(my: &CpuSlot) -> Option<&Space<W>> {
    if !Loaded(my.seen.loaded.load(Relaxed)).is_space() {
        return None;
    }
    // SAFETY: `loaded` names a space.
    Some(unsafe { noted(my) })
}

/// The space that this CPU uses: as [`get`], but none if it is lazy.
#[inline(always)]
pub(crate) fn used<const W: usize>(my: &CpuSlot) -> Option<&Space<W>> {
    if !Loaded(my.seen.loaded.load(Relaxed)).is_used() {
        return None;
    }
    // SAFETY: `loaded` names a space.
    Some(unsafe { noted(my) })
}

/// # Safety
///
/// `my` must be this CPU's slot, interrupts off, and its `loaded` must name a space.
#[inline(always)]
unsafe fn noted<const W: usize>(my: &CpuSlot) -> &Space<W> {
    // SAFETY: 1. `loaded` names a space, so `set` ran on this CPU before with a `&Space<W>`: a slot belongs to one
    //    flusher, which has one `W`. 2. The caller of `switch` promised that the space stays alive, where it is, until
    //    `retire` says `Ok`. 3. `retire` says so only once no CPU has the space loaded or is between two
    //    spaces: it reads `loaded` after this CPU has left it, and here we have not. 4. A space is only ever shared, never borrowed mutably, meanwhile.
    unsafe {
        let space = my.space.get();
        core::hint::assert_unchecked(!space.is_null());
        &*space.cast()
    }
}

/// The space that this CPU uses, to be remembered while it waits.
#[inline(always)]
pub(crate) fn remember(my: &CpuSlot) -> Option<NonNull<()>> {
    NonNull::new(my.space.get().cast_mut())
}

/// The space that was remembered.
///
/// # Safety
///
/// The space must still be where it was, and alive, as long as the result is used; its flusher's word count must be
/// `W`.
#[inline(always)]
pub(crate) unsafe fn remembered<'a, const W: usize>(space: NonNull<()>) -> &'a Space<W> {
    // SAFETY: `set` was given a `&Space<W>`; the rest is promised by the caller.
    unsafe { space.cast().as_ref() }
}
