//! Room in an emulator's TLB.
//!
//! QEMU's TLB is direct-mapped. At each flush it grows if most of it was used, and shrinks to what was used if the last time it
//! was fuller is 100 ms ago, which on a busy host comes at any moment (QEMU, accel/tcg/cputlb.c). A small one forgets a stale
//! translation for a page whose low page number agrees, and a test that must see it fails for nothing.

use core::{hint::black_box, ptr::with_exposed_provenance};

use x86_64::registers::control::Cr3;

/// Pages that are touched: most of a TLB of 512.
const PAGES: u64 = 460;
/// From 256 or fewer entries to 1024.
const ROUNDS: usize = 5;
/// RAM above the kernel's beginning, which all tables map to itself.
const BEGIN: u64 = 2 << 20;

/// Makes the own CPU's TLB large, and leaves it empty.
pub fn make() {
    for _ in 0..ROUNDS {
        for page in 0..PAGES {
            let place = with_exposed_provenance::<u8>((BEGIN + page * 4096) as usize);
            // SAFETY: it is mapped RAM; what is read does not matter.
            black_box(unsafe { place.read_volatile() });
        }
        let (root, flags) = Cr3::read_raw();
        // SAFETY: what is loaded already.
        unsafe { Cr3::write_raw(root, flags) };
    }
}
