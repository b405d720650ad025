//! The command line, as the loader hands it over in `hvm_start_info`.

use core::{
    ffi::{CStr, c_char},
    ptr::with_exposed_provenance,
};

use spin::Once;

const MAGIC: u32 = 0x336e_c578;
const COMMAND_LINE_OFFSET: usize = 24;

static LINE: Once<&'static str> = Once::new();

/// Finds the command line.
///
/// # Safety
/// `start_info` is what a PVH loader put in `ebx`, and the memory it describes stays as it is.
///
/// # Panics
/// When there is no such structure at that address.
pub(crate) unsafe fn init(start_info: usize) {
    // SAFETY: the caller says that a PVH loader gave the address, and low memory is identity mapped.
    let magic = unsafe { with_exposed_provenance::<u32>(start_info).read() };
    assert_eq!(magic, MAGIC, "not booted by a PVH loader (QEMU: -kernel)");
    // SAFETY: as above; the magic number says that the structure is there.
    let line = unsafe {
        with_exposed_provenance::<u64>(start_info + COMMAND_LINE_OFFSET).read_unaligned()
    };
    LINE.call_once(|| {
        if line == 0 {
            return "";
        }
        // SAFETY: the loader gives a NUL-terminated string, which stays in memory that nothing here uses.
        let line = unsafe { CStr::from_ptr(with_exposed_provenance::<c_char>(line as usize)) };
        line.to_str().expect("the command line is not UTF-8")
    });
}

/// The command line; empty where the loader gave none.
#[must_use]
pub fn get() -> &'static str {
    LINE.get().copied().unwrap_or("")
}
