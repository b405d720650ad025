//! Setting up hypercalls (TLFS, "Establishing the Hypercall Interface").

use crate::x86_64::Msrs;

/// HV_X64_MSR_GUEST_OS_ID.
const GUEST_OS_ID: u32 = 0x4000_0000;
/// HV_X64_MSR_HYPERCALL.
const HYPERCALL: u32 = 0x4000_0001;
/// HV_X64_MSR_VP_INDEX.
const VP_INDEX: u32 = 0x4000_0002;

const ENABLE: u64 = 1 << 0;
/// Until the next reset the page can't be moved.
const LOCKED: u64 = 1 << 1;
const PAGE: u64 = !0xfff;

/// A guest OS id for an open-source kernel (TLFS, "Guest OS Identity MSR").
///
/// ```
/// use shootdown::x86_64::hyperv::open_source_guest;
///
/// // Type 1 is Linux, 2 FreeBSD.
/// assert_eq!(open_source_guest(2, 0x000e_0000, 7), 0x8200_000e_0000_0007);
/// ```
///
/// # Panics
///
/// If `os_type` has more than 7 bits.
pub const fn open_source_guest(os_type: u8, version: u32, build: u16) -> u64 {
    assert!(os_type < 0x80, "the type of a guest OS has 7 bits");
    1 << 63 | (os_type as u64) << 56 | (version as u64) << 16 | build as u64
}

/// Says who the guest is and lets the hypervisor put its code into the hypercall page at `page`, a guest-physical address.
/// Once, on any CPU. If another page is locked already, its address is given: that one must be used.
///
/// # Errors
///
/// The address of the page that is locked.
///
/// # Panics
///
/// If `guest` is 0 or `page` is not the address of a page.
///
/// # Safety
///
/// The hypervisor must offer hypercalls ([`HyperVFeatures`](super::HyperVFeatures)). The page must be the guest's,
/// used for nothing else, and it is overlaid with code until [`disable_hypercalls`].
pub unsafe fn enable_hypercalls<M: Msrs>(guest: u64, page: u64) -> Result<(), u64> {
    assert!(
        guest != 0,
        "shootdown: a guest OS id of 0 turns hypercalls off"
    );
    assert!(
        page & !PAGE == 0,
        "shootdown: {page:#x} is not the address of a page"
    );
    // SAFETY: promised by the caller. The id goes first: without one the page can't be enabled.
    unsafe {
        M::write(GUEST_OS_ID, guest);
        let before = M::read(HYPERCALL);
        if before & LOCKED != 0 {
            return Err(before & PAGE);
        }
        // Bits 11:1 are kept, as the specification asks.
        M::write(HYPERCALL, before & !PAGE | page | ENABLE);
    }
    Ok(())
}

/// Turns hypercalls off, before another kernel starts. No CPU may be online in the flusher, or
/// [`HyperV::disable`](super::HyperV::disable) must have been called before.
///
/// # Safety
///
/// The hypervisor must offer hypercalls, and none may be made any more.
pub unsafe fn disable_hypercalls<M: Msrs>() {
    // SAFETY: promised by the caller.
    unsafe {
        let before = M::read(HYPERCALL);
        M::write(HYPERCALL, before & !(PAGE | ENABLE));
        M::write(GUEST_OS_ID, 0);
    }
}

/// This CPU's VP index.
///
/// # Safety
///
/// The hypervisor must offer the index ([`HyperVFeatures`](super::HyperVFeatures)).
pub unsafe fn vp_index<M: Msrs>() -> u32 {
    // SAFETY: promised by the caller. An index has 32 bits.
    unsafe { M::read(VP_INDEX) as u32 }
}
