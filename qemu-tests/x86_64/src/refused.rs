//! What the crate refuses, with the real registers behind it.

use shootdown::{
    OnlineError, Request, SpaceError,
    x86_64::{InitError, detect},
};
use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_kernel::{
    demo::config,
    paging::{Tables, kernel_root},
    smp,
};

use crate::{Backend, backend::bring_up_first, pages::new_space};

/// Detection agrees with CPUID, read another way.
///
/// # Panics
/// When it does not.
pub fn features_are_those_of_cpuid() {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    let features = detect();
    assert_eq!(features.pcid, __cpuid(1).ecx >> 17 & 1 == 1);
    let has_leaf_7 = __cpuid(0).eax >= 7;
    assert_eq!(
        features.invpcid,
        has_leaf_7 && __cpuid_count(7, 0).ebx >> 10 & 1 == 1
    );
    assert_eq!(
        features.la57_enabled,
        Cr4::read().contains(Cr4Flags::L5_PAGING)
    );
}

/// PCIDs can't be asked for where CPUID has none, and a refused configuration leaves the flusher as it was.
///
/// # Panics
/// When that is not so.
pub fn pcid_without_pcid<B: Backend>() {
    if !detect().pcid {
        assert_eq!(B::TLB.init(config().pcid(true)), Err(InitError::NoPcid));
    }
    assert_eq!(B::TLB.init(config()), Ok(()));
    assert_eq!(B::TLB.init(config()), Err(InitError::AlreadyInitialized));
}

/// A CPU whose CR4 differs from the first CPU's does not come online, until it is alike.
///
/// # Panics
/// When it does.
pub fn unequal_features<B: Backend>() {
    let tlb = bring_up_first::<B>();
    smp::start(None);
    smp::run_on_all(&|cpu| {
        if cpu == 1 {
            // SAFETY: nothing relies on global pages.
            unsafe { Cr4::update(|flags| flags.toggle(Cr4Flags::PAGE_GLOBAL)) };
            // Off where the kernel relies on it, or on where the first CPU does not have it.
            assert!(matches!(
                tlb.online(),
                Err(OnlineError::NoGlobalPages { cpu: 1 }
                    | OnlineError::UnequalFeatures { cpu: 1, .. })
            ));
            // SAFETY: as above.
            unsafe { Cr4::update(|flags| flags.toggle(Cr4Flags::PAGE_GLOBAL)) };
            assert_eq!(tlb.online(), Ok(()));
            assert_eq!(tlb.online(), Err(OnlineError::AlreadyOnline { cpu: 1 }));
        }
    });
}

/// Nothing works before the flusher is initialized, and a root that is no table is refused after it.
///
/// # Panics
/// When something does.
pub fn before_init<B: Backend>() {
    assert_eq!(B::TLB.online(), Err(OnlineError::NotInitialized));
    assert_eq!(
        B::TLB.space(kernel_root()).err(),
        Some(SpaceError::NotInitialized)
    );
    assert_eq!(B::TLB.init(config()), Ok(()));
    let root = kernel_root() + 8;
    assert_eq!(B::TLB.space(root).err(), Some(SpaceError::BadRoot { root }));
}

/// Flushes on a CPU that is not online.
///
/// # Panics
/// Always.
pub fn flush_offline<B: Backend>() {
    let (_tables, space) = {
        let tlb = bring_up_first::<B>();
        let made = new_space(tlb);
        tlb.offline();
        made
    };
    B::TLB.flush(&space, Request::all()).wait();
}

/// Flushes a space that has retired.
///
/// # Panics
/// Always.
pub fn flush_after_retire<B: Backend>() {
    let tlb = bring_up_first::<B>();
    let (_tables, space) = new_space(tlb);
    tlb.retire(&space).expect("nobody uses the space");
    tlb.flush(&space, Request::all()).wait();
}

/// Drops a space that is loaded.
///
/// # Panics
/// Always.
pub fn drop_loaded<B: Backend>() {
    let tlb = bring_up_first::<B>();
    let tables = core::mem::ManuallyDrop::new(Tables::new().expect("frames are left"));
    let space = tlb.space(tables.root()).expect("the root is a table");
    // SAFETY: the tables map the kernel and live on; to drop the space too early is the point, and must not return.
    unsafe { tlb.switch(&space) };
    drop(space);
}
