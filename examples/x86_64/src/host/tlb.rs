//! What the host drops on the CPU that runs this.

use core::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};

use x86_64::{
    VirtAddr,
    instructions::tlb,
    registers::control::{Cr3, Cr4, Cr4Flags},
};

static SKIP: AtomicBool = AtomicBool::new(false);

/// For a counter-proof: from now on the host answers as ever, but drops nothing; or does so again.
pub fn skip_flushes(skip: bool) {
    SKIP.store(skip, SeqCst);
}

fn skipped() -> bool {
    SKIP.load(Relaxed)
}

/// The root of the address space that is loaded.
pub(super) fn loaded_root() -> u64 {
    Cr3::read_raw().0.start_address().as_u64()
}

/// Drops what translates this address.
pub(super) fn drop_page(address: u64) {
    if !skipped() {
        tlb::flush(VirtAddr::new_truncate(address));
    }
}

/// Drops all that is not global.
pub(super) fn drop_non_global() {
    if !skipped() {
        tlb::flush_all();
    }
}

/// Drops everything.
pub(super) fn drop_everything() {
    if skipped() {
        return;
    }
    tlb::flush_all();
    // SAFETY: PGE only decides whether global entries are cached, and is put back at once.
    unsafe {
        Cr4::update(|flags| flags.toggle(Cr4Flags::PAGE_GLOBAL));
        Cr4::update(|flags| flags.toggle(Cr4Flags::PAGE_GLOBAL));
    }
}
