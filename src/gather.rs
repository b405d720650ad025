//! [`Gather`]: unmap many pages, flush once, and only then give the frames back.

use core::fmt;

use crate::{
    coverage::{Branch, took},
    flusher::{Scope, TlbFlusher},
    pending::Pending,
    range::Range,
    request::{ChangeFlags, Request},
    space::Space,
    variant::{Broken, broken},
};

/// The kernel's container for frames that wait for a flush: any collection that can take one more.
///
/// The frames must be *owned*: dropping one gives it back. A type that is `Copy`, such as `PhysFrame` of the x86_64
/// crate, names a frame but owns nothing, so it proves nothing about reuse; [`Gather`] refuses frames without drop
/// glue when the program is compiled.
pub trait FrameBag {
    /// An owned frame.
    type Frame;

    /// Puts `frame` in.
    ///
    /// # Errors
    ///
    /// Gives it back if the container is full.
    fn push(&mut self, frame: Self::Frame) -> Result<(), Self::Frame>;
}

/// A fixed number of frames, for kernels without an allocator.
#[derive(Debug)]
pub struct FrameArray<T, const N: usize> {
    frames: [Option<T>; N],
    len: usize,
}

impl<T, const N: usize> FrameArray<T, N> {
    /// No frames.
    pub const fn new() -> Self {
        Self {
            frames: [const { None }; N],
            len: 0,
        }
    }

    /// How many frames it holds.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T, const N: usize> Default for FrameArray<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> FrameBag for FrameArray<T, N> {
    type Frame = T;

    fn push(&mut self, frame: T) -> Result<(), T> {
        match self.frames.get_mut(self.len) {
            None => Err(frame),
            Some(free) => {
                *free = Some(frame);
                self.len += 1;
                Ok(())
            }
        }
    }
}

/// Collects the changes of one operation on a space (`munmap`, `exit`, a large `madvise`) and the frames it
/// unmapped, flushes once, and gives the frames back only then.
///
/// It marks its space before the first change, so that whoever meets a cleared entry meanwhile can tell that
/// its flush is still to come ([`Space::flush_pending`]). Where two gathers overlap, each flushes everything of the
/// space at all levels, since it can't know which entries the other one cleared (Linux commit 99baac21e458).
///
/// Page-table locks may be dropped before [`finish`](Self::finish) only if no other thread can act on a cleared entry
/// meanwhile; moving entries (`mremap`) finishes under the locks.
///
/// ```
/// use shootdown::{FrameArray, Gather, Range, Space, TlbFlusher};
/// # struct Frame; impl Drop for Frame { fn drop(&mut self) {} }
/// # fn clear_entry(_: u64) -> Frame { Frame }
///
/// fn unmap<F: TlbFlusher>(tlb: &F, space: &Space, range: Range) {
///     let mut gather = Gather::new(tlb, space, FrameArray::<Frame, 64>::new());
///     for page in range.iter() {
///         let frame = clear_entry(page);
///         let one = Range::new(tlb.paging(), page, 1, range.stride()).unwrap();
///         gather.unmapped(one, frame);
///     }
///     drop(gather.finish()); // flushed: now the frames may be reused
/// }
/// ```
#[must_use = "the frames are given back by `finish`"]
pub struct Gather<'a, F: TlbFlusher<W>, B: FrameBag, const W: usize = 1> {
    flusher: &'a F,
    space: &'a Space<W>,
    changed: Changed,
    overlapped: bool,
    /// `None` once it was handed out.
    frames: Option<B>,
}

/// What was changed so far.
#[derive(Clone, Copy, Debug)]
enum Changed {
    Nothing,
    Some { range: Range, flags: ChangeFlags },
    All { flags: ChangeFlags },
}

impl Changed {
    fn flags(self) -> ChangeFlags {
        match self {
            Self::Nothing => ChangeFlags::UNIFORM_LEVEL,
            Self::Some { flags, .. } | Self::All { flags } => flags,
        }
    }
}

/// Flags of two changes together: a level is uniform only if it is so in both.
fn join(a: ChangeFlags, b: ChangeFlags) -> ChangeFlags {
    let any = (a | b).difference(ChangeFlags::UNIFORM_LEVEL);
    any | (a & b & ChangeFlags::UNIFORM_LEVEL)
}

/// Owned frames only. This compiles:
///
/// ```no_run
/// # use shootdown::{CpuSlot, Cpus, FrameArray, Gather, IpiPlatform, Platform, TlbFlusher, x86_64::Ipi};
/// # struct Kernel;
/// # static SLOTS: [CpuSlot; 1] = [const { CpuSlot::new() }; 1];
/// # // SAFETY: one CPU, no interrupts.
/// # unsafe impl Platform for Kernel {
/// #     const CPUS: usize = 1;
/// #     fn current_cpu() -> usize { 0 }
/// #     fn pin() {}
/// #     fn unpin() {}
/// #     fn irq_save() -> usize { 0 }
/// #     fn irq_restore(_: usize) {}
/// #     fn slot(cpu: usize) -> &'static CpuSlot { &SLOTS[cpu] }
/// #     fn relax() {}
/// # }
/// # // SAFETY: there is nobody to interrupt.
/// # unsafe impl IpiPlatform for Kernel { fn send_flush_ipi(_: Cpus<'_>) {} }
/// # #[derive(Debug)]
/// # struct Fake;
/// # // SAFETY: there is no TLB.
/// # unsafe impl shootdown::x86_64::Instructions for Fake {
/// #     fn invlpg(_: u64) {}
/// #     fn invpcid(_: shootdown::x86_64::InvpcidKind, _: u16, _: u64) {}
/// #     fn read_cr3() -> u64 { 0 }
/// #     unsafe fn write_cr3(_: u64) {}
/// #     fn read_cr4() -> u64 { 0 }
/// #     unsafe fn write_cr4(_: u64) {}
/// #     fn read_efer() -> u64 { 0 }
/// #     fn publish_before_ipi() {}
/// #     fn barrier_after_rmw() {}
/// #     fn publish_before_invlpgb() {}
/// #     fn invlpgb(_: shootdown::x86_64::Invlpgb) {}
/// #     fn tlbsync() {}
/// # }
/// # static TLB: Ipi<Kernel, Fake> = Ipi::new();
/// struct Frame(u64);
/// impl Drop for Frame {
///     fn drop(&mut self) { /* gives the frame back */ }
/// }
/// let space = TLB.space(0x1000).unwrap();
/// let gather = Gather::new(&TLB, &space, FrameArray::<Frame, 64>::new());
/// ```
///
/// and with a frame that is `Copy` it does not:
///
/// ```compile_fail
/// # use shootdown::{CpuSlot, Cpus, FrameArray, Gather, IpiPlatform, Platform, TlbFlusher, x86_64::Ipi};
/// # struct Kernel;
/// # static SLOTS: [CpuSlot; 1] = [const { CpuSlot::new() }; 1];
/// # // SAFETY: one CPU, no interrupts.
/// # unsafe impl Platform for Kernel {
/// #     const CPUS: usize = 1;
/// #     fn current_cpu() -> usize { 0 }
/// #     fn pin() {}
/// #     fn unpin() {}
/// #     fn irq_save() -> usize { 0 }
/// #     fn irq_restore(_: usize) {}
/// #     fn slot(cpu: usize) -> &'static CpuSlot { &SLOTS[cpu] }
/// #     fn relax() {}
/// # }
/// # // SAFETY: there is nobody to interrupt.
/// # unsafe impl IpiPlatform for Kernel { fn send_flush_ipi(_: Cpus<'_>) {} }
/// # #[derive(Debug)]
/// # struct Fake;
/// # // SAFETY: there is no TLB.
/// # unsafe impl shootdown::x86_64::Instructions for Fake {
/// #     fn invlpg(_: u64) {}
/// #     fn invpcid(_: shootdown::x86_64::InvpcidKind, _: u16, _: u64) {}
/// #     fn read_cr3() -> u64 { 0 }
/// #     unsafe fn write_cr3(_: u64) {}
/// #     fn read_cr4() -> u64 { 0 }
/// #     unsafe fn write_cr4(_: u64) {}
/// #     fn read_efer() -> u64 { 0 }
/// #     fn publish_before_ipi() {}
/// #     fn barrier_after_rmw() {}
/// #     fn publish_before_invlpgb() {}
/// #     fn invlpgb(_: shootdown::x86_64::Invlpgb) {}
/// #     fn tlbsync() {}
/// # }
/// # static TLB: Ipi<Kernel, Fake> = Ipi::new();
/// #[derive(Clone, Copy)]
/// struct Frame(u64);
/// let space = TLB.space(0x1000).unwrap();
/// let gather = Gather::new(&TLB, &space, FrameArray::<Frame, 64>::new());
/// ```
const fn assert_owned<T>() {
    assert!(
        core::mem::needs_drop::<T>(),
        "a gather takes owned frames, which give themselves back when dropped"
    );
}

impl<'a, F: TlbFlusher<W>, B: FrameBag, const W: usize> Gather<'a, F, B, W> {
    /// Marks `space`. `frames` will hold what is unmapped.
    pub fn new(flusher: &'a F, space: &'a Space<W>, frames: B) -> Self {
        const { assert_owned::<B::Frame>() };
        let overlapped = !broken(Broken::NoGatherMark) && space.open_gather() != 0;
        Self {
            flusher,
            space,
            changed: Changed::Nothing,
            overlapped,
            frames: Some(frames),
        }
    }

    /// Notes that the entries of `range` were cleared or restricted.
    pub fn changed(&mut self, range: Range) {
        self.changed_with(range, ChangeFlags::empty());
    }

    /// Notes that the entries of `range` were changed, and what else about them.
    pub fn changed_with(&mut self, range: Range, flags: ChangeFlags) {
        self.changed = match self.changed {
            Changed::Nothing => Changed::Some { range, flags },
            Changed::All { flags: before } => Changed::All {
                flags: join(before, flags),
            },
            Changed::Some {
                range: before,
                flags: with,
            } => {
                let mut flags = join(with, flags);
                if before.stride() != range.stride() {
                    flags.remove(ChangeFlags::UNIFORM_LEVEL);
                }
                match before.union(&range, self.flusher.paging()) {
                    Some(range) => Changed::Some { range, flags },
                    None => Changed::All { flags },
                }
            }
        };
    }

    /// Notes that the entry of `page` was cleared, which mapped `frame`. If the container is full, flushes what was
    /// gathered, and drops the frames it holds.
    pub fn unmapped(&mut self, page: Range, frame: B::Frame)
    where
        B: Default,
    {
        self.changed(page);
        self.keep(frame);
    }

    /// Notes that a page-table page was unlinked that served `range`.
    pub fn table_unlinked(&mut self, range: Range, table: B::Frame)
    where
        B: Default,
    {
        self.changed_with(range, ChangeFlags::TABLES_FREED);
        self.keep(table);
    }

    /// Puts a frame in without flushing.
    ///
    /// # Errors
    ///
    /// Gives it back if the container is full.
    pub fn push(&mut self, frame: B::Frame) -> Result<(), B::Frame> {
        match &mut self.frames {
            Some(frames) => frames.push(frame),
            None => Err(frame),
        }
    }

    fn keep(&mut self, frame: B::Frame)
    where
        B: Default,
    {
        if let Err(frame) = self.push(frame) {
            self.flush_changed();
            let mut emptied = B::default();
            let refused = emptied.push(frame).err();
            drop(self.frames.replace(emptied));
            // A container without room for one frame: it is flushed already, so it may go at once.
            drop(refused);
        }
    }

    /// Flushes what was gathered so far and waits.
    fn flush_changed(&mut self) {
        let overlapped = self.overlapped || self.space.open_gathers() > 1;
        let flags = self.changed.flags();
        let changed = core::mem::replace(&mut self.changed, Changed::Nothing);
        let request = if overlapped && !broken(Broken::GatherOverlapIgnored) {
            took(Branch::GatherOverlapped);
            // The other gather may have cleared entries, or unlinked tables, where this one found nothing to do.
            Request::all().tables_freed()
        } else {
            match changed {
                Changed::Nothing => return,
                Changed::Some { range, .. } => Request::range(range).with(flags),
                Changed::All { .. } => Request::all().with(flags),
            }
        };
        Pending::start(self.flusher, Scope::Space(self.space), request).wait();
    }

    /// Flushes, waits, and gives the frames back: from now on they may be reused.
    pub fn finish(mut self) -> B {
        self.flush_changed();
        let frames = self.frames.take();
        // Only here and in `drop` is it taken.
        frames.unwrap_or_else(|| unreachable!("a gather is finished once"))
    }
}

impl<F: TlbFlusher<W>, B: FrameBag, const W: usize> Drop for Gather<'_, F, B, W> {
    fn drop(&mut self) {
        if self.frames.is_some() {
            self.flush_changed();
        }
        if !broken(Broken::NoGatherMark) {
            self.space.close_gather();
        }
    }
}

impl<F: TlbFlusher<W>, B: FrameBag, const W: usize> fmt::Debug for Gather<'_, F, B, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather")
            .field("space", &self.space.id())
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}
