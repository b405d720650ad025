//! Flushes of a space, by size of page and by scope.

use shootdown::{Request, Stride};
use spin::Mutex;
use x86_kernel::{
    frames::{Frame, LARGE_PAGE},
    paging::USER_WINDOW,
};

use crate::{
    Backend, Flush, bring_up,
    observe::{ADDRESSES, Watch, observe, read, write},
    pages::{frame, large_frame, new_space, range},
};

const OLD: u64 = 0x0101;
const NEW: u64 = 0x0202;

/// What must be seen at the addresses: the new pages if the flush was done, else the old ones.
fn expected(flush: Flush) -> u64 {
    if flush == Flush::Done { NEW } else { OLD }
}

/// Exchanges the frames at `addresses`, then flushes: everyone must see the new ones.
fn exchange<B: Backend>(
    flush: Flush,
    addresses: &[u64],
    frame: fn(u64) -> Frame,
    request: fn(&B) -> Request,
) {
    let tlb = bring_up::<B>();
    let (tables, space) = new_space(tlb);
    for (index, va) in addresses.iter().enumerate() {
        tables
            .lock()
            .user()
            .map(*va, frame(OLD + index as u64))
            .expect("nothing is mapped");
    }
    // The old frames live on, so that a stale translation reads what it did. The new ones are there before: to make a
    // large one touches so many pages that an emulator's TLB forgets the old translation by itself.
    let frames = Mutex::new([const { None }; ADDRESSES]);
    for (index, new) in frames.lock().iter_mut().take(addresses.len()).enumerate() {
        *new = Some(frame(NEW + index as u64));
    }
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, addresses, &|| {
        for (va, frame) in addresses.iter().zip(frames.lock().iter_mut()) {
            let old = tables.lock().user().unmap(*va);
            let new = core::mem::replace(frame, old).expect("it was made before");
            tables.lock().user().map(*va, new).expect("it was unmapped");
        }
        flush.run(|| tlb.flush(&space, request(tlb)).wait());
    });
    observed.assert_all(|index| Some(expected(flush) + index as u64));
    tlb.retire(&space).expect("nobody uses the space");
}

/// One 4 KiB page, by its range.
pub fn page_4k<B: Backend>(flush: Flush) {
    exchange::<B>(flush, &[USER_WINDOW], frame, |tlb| {
        Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K))
    });
}

/// One 2 MiB page, by its range.
pub fn page_2m<B: Backend>(flush: Flush) {
    exchange::<B>(flush, &[USER_WINDOW], large_frame, |tlb| {
        Request::range(range(tlb, USER_WINDOW, 1, Stride::Size2M))
    });
}

/// Where the ranges begin: away from what else an emulator's TLB keeps at the same place.
const START: u64 = USER_WINDOW + 0x2_9000;
const FEW: u64 = 33;
const MANY: u64 = 64;

/// As many pages as are still flushed one by one: first, one between, last.
pub fn range_partial<B: Backend>(flush: Flush) {
    let at = |page: u64| START + page * 4096;
    exchange::<B>(flush, &[at(0), at(FEW / 2), at(FEW - 1)], frame, |tlb| {
        Request::range(range(tlb, START, FEW, Stride::Size4K))
    });
    assert!(flush != Flush::Done || B::TLB.counters().full == 0);
}

/// So many that everything is flushed.
pub fn range_full<B: Backend>(flush: Flush) {
    let at = |page: u64| START + page * 4096;
    exchange::<B>(flush, &[at(0), at(MANY / 2), at(MANY - 1)], frame, |tlb| {
        Request::range(range(tlb, START, MANY, Stride::Size4K))
    });
    assert!(flush != Flush::Done || B::TLB.counters().full == 1);
}

/// The whole space: pages that no one range holds.
pub fn all<B: Backend>(flush: Flush) {
    // An emulator's TLB keeps few translations whose low page numbers agree.
    let addresses = [
        USER_WINDOW + 0x2_9000,
        USER_WINDOW + LARGE_PAGE + 0x2_a000,
        USER_WINDOW + (1 << 38) + 0x2_b000,
    ];
    exchange::<B>(flush, &addresses, frame, |_| Request::all());
}

/// A page that is gone.
pub fn unmap<B: Backend>(flush: Flush) {
    let tlb = bring_up::<B>();
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    let old = Mutex::new(None);
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        *old.lock() = tables.lock().user().unmap(USER_WINDOW);
        flush.run(|| {
            tlb.flush(
                &space,
                Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K)),
            )
            .wait()
        });
    });
    observed.assert_all(|_| (flush != Flush::Done).then_some(OLD));
    tlb.retire(&space).expect("nobody uses the space");
}

/// A page that must not be written any more.
pub fn protect<B: Backend>(flush: Flush) {
    let tlb = bring_up::<B>();
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: write,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        assert!(tables.lock().user().set_writable(USER_WINDOW, false));
        flush.run(|| {
            tlb.flush(
                &space,
                Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K)),
            )
            .wait()
        });
    });
    observed.assert_all(|_| (flush != Flush::Done).then_some(USER_WINDOW));
    tlb.retire(&space).expect("nobody uses the space");
}

/// `flush_local` cleans this CPU and no other: the others are its counter-test.
///
/// # Panics
/// When that is not so.
pub fn local<B: Backend>(flush: Flush) {
    let tlb = bring_up::<B>();
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    let old = Mutex::new(None);
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        *old.lock() = tables.lock().user().unmap(USER_WINDOW);
        tables
            .lock()
            .user()
            .map(USER_WINDOW, frame(NEW))
            .expect("it was unmapped");
        flush.run(|| tlb.flush_local(USER_WINDOW));
    });
    observed.assert_one(0, |_| Some(expected(flush)));
    observed.assert_one(1, |_| Some(OLD));
    tlb.retire(&space).expect("nobody uses the space");
}
