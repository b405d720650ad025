//! The real hypercall: a call into the page that the hypervisor has filled.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Hypercall;
use crate::x86_64::leaf;

/// Makes hypercalls through the hypercall page. Before [`set_page`](Self::set_page) each is refused.
#[derive(Debug)]
pub struct ThroughPage;

/// The page's virtual address.
static PAGE: AtomicU64 = AtomicU64::new(0);

/// HV_STATUS_INVALID_HYPERCALL_CODE.
const INVALID_HYPERCALL_CODE: u64 = 2;

impl ThroughPage {
    /// Says where the page is that was given to [`enable_hypercalls`](super::enable_hypercalls): its virtual address. 0
    /// takes it back.
    ///
    /// # Safety
    ///
    /// The page must be mapped executable there, on every CPU, in every space, as long as hypercalls are made.
    pub unsafe fn set_page(virtual_address: u64) {
        PAGE.store(virtual_address, Relaxed);
    }
}

// SAFETY: it is the hypervisor's answer, or a refusal. The assembly clobbers memory.
unsafe impl Hypercall for ThroughPage {
    unsafe fn call(control: u64, input: u64) -> u64 {
        let page = PAGE.load(Relaxed);
        if page == 0 {
            return INVALID_HYPERCALL_CODE;
        }
        // SAFETY: `set_page` was promised that the hypervisor's code is there; the caller vouches for the operands.
        unsafe { leaf::call_hypercall_page(page, control, input) }
    }
}
