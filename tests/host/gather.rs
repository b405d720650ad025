//! Gathers and batches: what is flushed, and when frames come back.

use std::{cell::Cell, rc::Rc};

use shootdown::{
    Batch, FrameArray, FrameBag, Gather, Paging, Range, Request, Stride, TlbFlusher,
    x86_64::{Config, Features, Ipi},
};

use crate::{
    machine,
    platform::{LogX86, take_log},
};

/// Counts its drops.
struct Frame(Rc<Cell<usize>>);

impl Drop for Frame {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn page(addr: u64) -> Range {
    Range::new(Paging::X86_4_LEVEL, addr, 1, Stride::Size4K).unwrap()
}

macro_rules! loaded {
    ($platform:ident, $tlb:ident, $space:ident) => {
        machine!($platform, 1, $tlb: Ipi<$platform, LogX86>);
        $tlb.init(Config::new(Features::default(), 0x1000)).unwrap();
        $tlb.online().unwrap();
        let $space = $tlb.space(0xa000).unwrap();
        // SAFETY: nothing is translated on the host.
        unsafe { $tlb.switch(&$space) };
        take_log();
    };
}

#[test]
fn one_flush_and_then_the_frames() {
    loaded!(Kernel, TLB, space);
    let freed = Rc::new(Cell::new(0));
    let mut gather = Gather::new(&TLB, &space, FrameArray::<Frame, 4>::new());
    assert!(space.flush_pending());
    gather.unmapped(page(0x5000), Frame(freed.clone()));
    gather.unmapped(page(0x7000), Frame(freed.clone()));
    assert_eq!(take_log(), [""; 0]);
    let frames = gather.finish();
    assert_eq!(
        take_log(),
        ["invlpg 0x5000", "invlpg 0x6000", "invlpg 0x7000"]
    );
    assert!(!space.flush_pending());
    assert_eq!((frames.len(), freed.get()), (2, 0));
    drop(frames);
    assert_eq!(freed.get(), 2);
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}

#[test]
fn a_full_container_is_flushed_and_emptied() {
    loaded!(Kernel, TLB, space);
    let freed = Rc::new(Cell::new(0));
    let mut gather = Gather::new(&TLB, &space, FrameArray::<Frame, 2>::new());
    for addr in [0x1000, 0x2000, 0x3000] {
        gather.unmapped(page(addr), Frame(freed.clone()));
    }
    // The third found no room: all three changes are flushed, the first two frames are free.
    assert_eq!(
        take_log(),
        ["invlpg 0x1000", "invlpg 0x2000", "invlpg 0x3000"]
    );
    assert_eq!(freed.get(), 2);
    assert!(gather.push(Frame(freed.clone())).is_ok());
    let refused = gather.push(Frame(freed.clone())).unwrap_err();
    assert_eq!(freed.get(), 2);
    drop(refused);
    // Dropped, not finished: flushes all the same, here nothing.
    drop(gather);
    assert_eq!((take_log().len(), freed.get()), (0, 5));
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}

#[test]
fn overlapping_gathers_flush_even_what_they_did_not_clear() {
    loaded!(Kernel, TLB, space);
    let first = Gather::new(&TLB, &space, FrameArray::<Frame, 1>::new());
    let second = Gather::new(&TLB, &space, FrameArray::<Frame, 1>::new());
    drop(second.finish());
    // Nothing was cleared here, but maybe there.
    assert_eq!(take_log(), ["cr3 0xa000"]);
    assert!(space.flush_pending());
    drop(first.finish());
    assert_eq!(take_log(), [""; 0]);
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}

#[test]
fn a_batch_flushes_when_it_is_full_or_dropped() {
    loaded!(Kernel, TLB, space);
    let others = [TLB.space(0xb000).unwrap(), TLB.space(0xc000).unwrap()];
    let mut batch = Batch::<_, 1, 2>::new(&TLB);
    batch.add(&others[0], Request::range(page(0x1000)));
    batch.add(&space, Request::range(page(0x2000)));
    batch.add(&space, Request::range(page(0x3000)));
    assert_eq!(take_log(), [""; 0]);
    batch.add(&others[1], Request::range(page(0x4000)));
    assert_eq!(take_log(), ["invlpg 0x2000", "invlpg 0x3000"]);
    batch.add(&space, Request::range(page(0x5000)));
    drop(batch);
    assert_eq!(take_log(), ["invlpg 0x5000"]);
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}

#[test]
fn a_kernel_may_bring_its_own_container() {
    struct Stack(Vec<Frame>);
    impl FrameBag for Stack {
        type Frame = Frame;
        fn push(&mut self, frame: Frame) -> Result<(), Frame> {
            self.0.push(frame);
            Ok(())
        }
    }
    loaded!(Kernel, TLB, space);
    let freed = Rc::new(Cell::new(0));
    let mut gather = Gather::new(&TLB, &space, Stack(Vec::new()));
    gather.changed(page(0x9000));
    assert!(gather.push(Frame(freed.clone())).is_ok());
    assert_eq!(gather.finish().0.len(), 1);
    assert_eq!(take_log(), ["invlpg 0x9000"]);
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.unload() };
    TLB.retire(&space).unwrap();
}
