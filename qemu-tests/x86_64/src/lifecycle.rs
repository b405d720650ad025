//! CPUs and spaces that come and go.

use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use shootdown::{Request, RetireError, Stride};
use shootdown_workload::Barrier;
use spin::Mutex;
use x86_64::instructions::interrupts;
use x86_kernel::{
    paging::{KERNEL_WINDOW, KernelWindow, USER_WINDOW},
    smp,
};

use crate::{
    Backend, Flush,
    backend::bring_up_first,
    bring_up,
    observe::read,
    pages::{frame, new_space, range},
};

const OLD: u64 = 0x0707;
const NEW: u64 = 0x0808;

/// Before other CPUs are online, a flush is local and sends nothing; those that come later see what is new.
pub fn before_other_cpus<B: Backend>(flush: Flush) {
    let tlb = bring_up_first::<B>();
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
    unsafe { tlb.switch(&space) };
    assert_eq!(read(USER_WINDOW), Ok(OLD));
    let _old = tables.lock().user().unmap(USER_WINDOW);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(NEW))
        .expect("it was unmapped");
    flush.run(|| {
        tlb.flush(
            &space,
            Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K)),
        )
        .wait()
    });
    assert_eq!(
        read(USER_WINDOW),
        Ok(if flush == Flush::Done { NEW } else { OLD })
    );
    assert_eq!(tlb.counters().ipis_sent, 0);

    smp::start(None);
    smp::run_on_all(&|cpu| {
        if cpu != 0 {
            tlb.online().expect("all CPUs are alike");
            // SAFETY: as above.
            unsafe { tlb.switch(&space) };
            assert_eq!(read(USER_WINDOW), Ok(NEW));
        }
        // SAFETY: the kernel's tables map the kernel.
        unsafe { tlb.unload() };
    });
    tlb.retire(&space).expect("nobody uses the space");
}

/// A CPU that is offline is not waited for, whatever it does, and flushes when it comes back: what it sees before
/// that is the counter-test.
///
/// # Panics
/// When that is not so.
pub fn offline_and_back<B: Backend>() {
    let tlb = bring_up::<B>();
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    KernelWindow::lock()
        .mapper()
        .map(KERNEL_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    let barrier = Barrier::new(smp::cpus());
    let old = Mutex::new([const { None }; 2]);
    smp::run_on_all(&|cpu| {
        // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
        unsafe { tlb.switch(&space) };
        assert_eq!((read(USER_WINDOW), read(KERNEL_WINDOW)), (Ok(OLD), Ok(OLD)));
        if cpu == 1 {
            tlb.offline();
            // Deaf and blind: a flush that waits for this CPU never ends.
            interrupts::disable();
            assert_eq!(read(KERNEL_WINDOW), Ok(OLD));
        }
        barrier.wait(spin_loop);
        if cpu == 0 {
            let page = |va| Request::range(range(tlb, va, 1, Stride::Size4K));
            old.lock()[0] = tables.lock().user().unmap(USER_WINDOW);
            tables
                .lock()
                .user()
                .map(USER_WINDOW, frame(NEW))
                .expect("it was unmapped");
            tlb.flush(&space, page(USER_WINDOW)).wait();
            old.lock()[1] = KernelWindow::lock().mapper().unmap(KERNEL_WINDOW);
            KernelWindow::lock()
                .mapper()
                .map(KERNEL_WINDOW, frame(NEW))
                .expect("it was unmapped");
            tlb.flush_kernel(page(KERNEL_WINDOW)).wait();
        }
        barrier.wait(spin_loop);
        if cpu == 1 {
            assert_eq!(read(KERNEL_WINDOW), Ok(OLD), "nobody flushed here yet");
            tlb.online().expect("it was online before");
            interrupts::enable();
            // SAFETY: as above.
            unsafe { tlb.switch(&space) };
        }
        assert_eq!((read(USER_WINDOW), read(KERNEL_WINDOW)), (Ok(NEW), Ok(NEW)));
        barrier.wait(spin_loop);
        // SAFETY: the kernel's tables map the kernel.
        unsafe { tlb.unload() };
    });
    tlb.retire(&space).expect("nobody uses the space");
}

/// A CPU that is online again is flushed like any other.
///
/// # Panics
/// When it is not.
pub fn reached_again_after_online<B: Backend>() {
    let tlb = bring_up::<B>();
    smp::run_on_all(&|cpu| {
        if cpu != 0 {
            tlb.offline();
            tlb.online().expect("it was online before");
        }
    });
    let (tables, space) = new_space(tlb);
    tables
        .lock()
        .user()
        .map(USER_WINDOW, frame(OLD))
        .expect("nothing is mapped");
    let old = Mutex::new(None);
    let watch = crate::observe::Watch {
        space: Some(&space),
        lazy: false,
        access: read,
    };
    let observed = crate::observe::observe(tlb, watch, &[USER_WINDOW], &|| {
        *old.lock() = tables.lock().user().unmap(USER_WINDOW);
        tables
            .lock()
            .user()
            .map(USER_WINDOW, frame(NEW))
            .expect("it was unmapped");
        tlb.flush(
            &space,
            Request::range(range(tlb, USER_WINDOW, 1, Stride::Size4K)),
        )
        .wait();
    });
    observed.assert_all(|_| Some(NEW));
    let others = if B::BROADCASTS {
        0
    } else {
        smp::cpus() as u64 - 1
    };
    assert_eq!(tlb.counters().ipis_sent, others);
    tlb.retire(&space).expect("nobody uses the space");
}

/// A space in use can't be retired; one that CPUs keep lazily can, and they have unloaded it then.
///
/// # Panics
/// When that is not so.
pub fn retire_names_users<B: Backend>() {
    let tlb = bring_up::<B>();
    let (_tables, space) = new_space(tlb);
    let (barrier, refused) = (Barrier::new(smp::cpus()), AtomicU64::new(0));
    smp::run_on_all(&|cpu| {
        if cpu != 0 {
            // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
            unsafe { tlb.switch(&space) };
        }
        barrier.wait(spin_loop);
        if cpu == 0
            && matches!(tlb.retire(&space), Err(RetireError::Running(cpus)) if cpus.iter().eq(1..smp::cpus()))
        {
            refused.fetch_add(1, SeqCst);
        }
        barrier.wait(spin_loop);
        if cpu != 0 {
            // The space is unloaded by `retire`, not left.
            let _outer = tlb.lazy_enter();
        }
    });
    assert_eq!(refused.into_inner(), 1);
    assert_eq!(tlb.retire(&space), Ok(()));
    assert!(tlb.retire(&space).is_err(), "a space retires once");
}
