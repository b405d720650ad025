//! Flushes of the kernel's own, global mappings, while CPUs have a space loaded, are lazy, or have none.

use shootdown::{Request, Stride};
use spin::Mutex;
use x86_kernel::{
    frames::Frame,
    paging::{KERNEL_WINDOW, KernelWindow},
};

use crate::{
    Backend, Flush, bring_up,
    observe::{Watch, observe, read},
    pages::{frame, large_frame, new_space, range},
};

const OLD: u64 = 0x0303;
const NEW: u64 = 0x0404;

fn exchange<B: Backend>(
    flush: Flush,
    in_space: bool,
    lazy: bool,
    frame: fn(u64) -> Frame,
    request: fn(&B) -> Request,
) {
    let tlb = bring_up::<B>();
    let (_tables, space) = new_space(tlb);
    KernelWindow::lock()
        .mapper()
        .map(KERNEL_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    // As for spaces: the new frame is there before, and the old one lives on.
    let other = Mutex::new(Some(frame(NEW)));
    let watch = Watch {
        space: in_space.then_some(&space),
        lazy,
        access: read,
    };
    let observed = observe(tlb, watch, &[KERNEL_WINDOW], &|| {
        let old = KernelWindow::lock().mapper().unmap(KERNEL_WINDOW);
        let new = core::mem::replace(&mut *other.lock(), old).expect("it was made before");
        KernelWindow::lock()
            .mapper()
            .map(KERNEL_WINDOW, new)
            .expect("it was unmapped");
        flush.run(|| tlb.flush_kernel(request(tlb)).wait());
    });
    observed.assert_all(|_| Some(if flush == Flush::Done { NEW } else { OLD }));
    assert!(!B::BROADCASTS || tlb.counters().ipis_sent == 0);
    tlb.retire(&space).expect("nobody uses the space");
}

fn one_page<B: Backend>(tlb: &B) -> Request {
    Request::range(range(tlb, KERNEL_WINDOW, 1, Stride::Size4K))
}

/// One 4 KiB page; the CPUs have a space loaded.
pub fn page_4k<B: Backend>(flush: Flush) {
    exchange::<B>(flush, true, false, frame, one_page);
}

/// One 4 KiB page; the CPUs have no space.
pub fn page_4k_without_space<B: Backend>(flush: Flush) {
    exchange::<B>(flush, false, false, frame, one_page);
}

/// One 4 KiB page; the CPUs are lazy, and must be reached all the same.
pub fn page_4k_lazy<B: Backend>(flush: Flush) {
    exchange::<B>(flush, true, true, frame, one_page);
}

/// One 2 MiB page.
pub fn page_2m<B: Backend>(flush: Flush) {
    exchange::<B>(flush, true, false, large_frame, |tlb| {
        Request::range(range(tlb, KERNEL_WINDOW, 1, Stride::Size2M))
    });
}

/// Everything, global entries too.
pub fn all<B: Backend>(flush: Flush) {
    exchange::<B>(flush, true, false, frame, |_| Request::all());
}
