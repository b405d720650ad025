//! Freed tables, gathers and batches.

use shootdown::{Batch, FrameArray, Gather, Request, Stride};
use spin::Mutex;
use x86_kernel::{
    frames::{Frame, LARGE_PAGE},
    paging::USER_WINDOW,
};

use crate::{
    Backend, Flush, bring_up,
    observe::{Watch, observe, read},
    pages::{frame, new_space, range},
};

const OLD: u64 = 0x0909;
const NEW: u64 = 0x0a0a;

/// What must be seen: the new page if the flush was done, else the old one.
fn expected(flush: Flush) -> u64 {
    if flush == Flush::Done { NEW } else { OLD }
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
