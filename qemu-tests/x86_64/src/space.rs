//! Flushes of a space, by size of page and by scope.

use shootdown::{Batch, FrameArray, Gather, Range, Request, Space, Stride};
use spin::Mutex;
use x86_kernel::{
    frames::{Frame, LARGE_PAGE},
    paging::{Tables, USER_WINDOW},
};

use crate::{
    Backend, Flush, bring_up,
    observe::{ADDRESSES, Watch, observe, read, write},
};

const OLD: u64 = 0x0101;
const NEW: u64 = 0x0202;

/// A data frame whose first word says which it is.
///
/// # Panics
/// When no frame is left.
pub fn frame(value: u64) -> Frame {
    let frame = Frame::data().expect("frames are left");
    frame.store(0, value);
    frame
}

/// As [`frame`], of 2 MiB.
///
/// # Panics
/// When no frame is left.
pub fn large_frame(value: u64) -> Frame {
    let frame = Frame::large().expect("frames are left");
    frame.store(0, value);
    frame
}

/// A range of the window.
///
/// # Panics
/// When there is no such range.
pub fn range<B: Backend>(tlb: &B, va: u64, pages: u64, stride: Stride) -> Range {
    Range::new(tlb.paging(), va, pages, stride).expect("the range is good")
}

/// Tables, and their space.
///
/// # Panics
/// When frames run out.
pub fn new_space<B: Backend>(tlb: &B) -> (Mutex<Tables>, Space) {
    let tables = Tables::new().expect("frames are left");
    let space = tlb.space(tables.root()).expect("the root is a table");
    (Mutex::new(tables), space)
}

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

const FEW: u64 = 33;
const MANY: u64 = 64;

/// As many pages as are still flushed one by one: first, one between, last.
pub fn range_partial<B: Backend>(flush: Flush) {
    let at = |page: u64| USER_WINDOW + page * 4096;
    exchange::<B>(flush, &[at(0), at(FEW / 2), at(FEW - 1)], frame, |tlb| {
        Request::range(range(tlb, USER_WINDOW, FEW, Stride::Size4K))
    });
    assert!(flush != Flush::Done || B::TLB.counters().full == 0);
}

/// So many that everything is flushed.
pub fn range_full<B: Backend>(flush: Flush) {
    let at = |page: u64| USER_WINDOW + page * 4096;
    exchange::<B>(flush, &[at(0), at(MANY / 2), at(MANY - 1)], frame, |tlb| {
        Request::range(range(tlb, USER_WINDOW, MANY, Stride::Size4K))
    });
    assert!(flush != Flush::Done || B::TLB.counters().full == 1);
}

/// The whole space: pages that no one range holds.
pub fn all<B: Backend>(flush: Flush) {
    let addresses = [
        USER_WINDOW,
        USER_WINDOW + LARGE_PAGE,
        USER_WINDOW + (1 << 38),
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

/// Pages and their table, through a gather, and other pages in their place.
pub fn tables_freed<B: Backend>(flush: Flush) {
    let tlb = bring_up::<B>();
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    let kept = Mutex::new([const { None }; 8]);
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        let mut count = 0;
        tables
            .lock()
            .user()
            .clear(USER_WINDOW, LARGE_PAGE, &mut |freed| {
                kept.lock()[count] = Some(freed);
                count += 1;
            });
        assert_eq!(count, 4, "a page and three levels of tables");
        tables
            .lock()
            .user()
            .map(USER_WINDOW, frame(NEW))
            .expect("it was unmapped");
        flush.run(|| tlb.flush(&space, Request::all().tables_freed()).wait());
    });
    observed.assert_all(|_| Some(expected(flush)));
    tlb.retire(&space).expect("nobody uses the space");
}

/// A gather gives the frames back only when its flush is complete. By dropping the frame at once, the counter-test
/// has it reused while others still reach it.
pub fn gather<B: Backend>(flush: Flush) {
    let tlb = bring_up::<B>();
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    let reused = Mutex::new(None);
    let watch = Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        let page = range(tlb, USER_WINDOW, 1, Stride::Size4K);
        if flush == Flush::Missing {
            drop(tables.lock().user().unmap(USER_WINDOW));
        } else {
            flush.run(|| {
                let mut gather = Gather::new(tlb, &space, FrameArray::<Frame, 4>::new());
                let gone = tables
                    .lock()
                    .user()
                    .unmap(USER_WINDOW)
                    .expect("it is mapped");
                gather.unmapped(page, gone);
                drop(gather.finish());
            });
        }
        // The pool hands out last what it got first.
        *reused.lock() = Some(frame(NEW));
    });
    observed.assert_all(|_| (flush != Flush::Done).then_some(NEW));
    tlb.retire(&space).expect("nobody uses the space");
}

/// Two spaces in one batch; the CPUs have the second loaded.
pub fn batch<B: Backend>(flush: Flush) {
    let tlb = bring_up::<B>();
    let places = [new_space(tlb), new_space(tlb)];
    for (tables, _) in &places {
        tables
            .lock()
            .user()
            .map(USER_WINDOW, frame(OLD))
            .expect("nothing is mapped");
    }
    let old = Mutex::new([const { None }; 2]);
    let watch = Watch {
        space: Some(&places[1].1),
        lazy: false,
        access: read,
    };
    let observed = observe(tlb, watch, &[USER_WINDOW], &|| {
        for (index, (tables, _)) in places.iter().enumerate() {
            old.lock()[index] = tables.lock().user().unmap(USER_WINDOW);
            tables
                .lock()
                .user()
                .map(USER_WINDOW, frame(NEW))
                .expect("it was unmapped");
        }
        flush.run(|| {
            let mut batch = Batch::<_, 1, 2>::new(tlb);
            for (_, space) in &places {
                batch.add(
                    space,
                    Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K)),
                );
            }
            batch.flush();
        });
    });
    observed.assert_all(|_| Some(expected(flush)));
    for (_, space) in &places {
        tlb.retire(space).expect("nobody uses the space");
    }
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
