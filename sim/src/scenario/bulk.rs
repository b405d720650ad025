//! Operations that collect several changes: gathers, batches, flushes that are open at the same time.

use std::rc::Rc;

use shootdown::{Batch, ChangeFlags, FrameArray, FrameBag, Gather, Range, Stride};

use super::{
    actor::{Actor, complete, give_back, inside, space_of},
    backend::Backend,
    edit::Edit,
    owner::{Found, Owner},
};
use crate::machine::{current::with, layout, oracle::Promise, scheduler::point};

/// An owned frame or table: dropping it gives it back.
#[derive(Debug)]
pub(crate) struct OwnedFrame(u16);

impl Drop for OwnedFrame {
    fn drop(&mut self) {
        give_back(&[self.0]);
    }
}

/// What a gather has done, in ground truth.
#[derive(Debug, Default)]
struct Gathered {
    /// Pages whose translation it took away.
    changed: u32,
    /// The first and the last address that it told the gather.
    told: Option<(u64, u64)>,
    /// Pages that it found cleared already, perhaps by another gather, and relies on being gone.
    cleared: u32,
    tables: bool,
}

impl Gathered {
    fn tells(&mut self, range: &Range) {
        let (first, last) = self.told.unwrap_or((range.start(), range.last()));
        self.told = Some((first.min(range.start()), last.max(range.last())));
    }
}

/// Which pages a gather unmaps, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherPlan {
    pub first: u8,
    pub count: u8,
    /// Tables of whole regions go too.
    pub tables: bool,
    /// The lock is dropped between pages.
    pub split: bool,
}

impl<F: Backend<W>, const W: usize> Actor<'_, F, W> {
    fn range(&self, first: u64, bytes: u64, stride: Stride) -> Range {
        match Range::new(
            self.flusher().paging(),
            first,
            bytes / stride.bytes(),
            stride,
        ) {
            Ok(range) => range,
            Err(error) => panic!("the scenario's range is bad: {error}"),
        }
    }

    pub(crate) fn gather(&self, space: u8, plan: GatherPlan, small: bool) {
        let Some(owner) = self.begin(space) else {
            return;
        };
        if small {
            self.gather_into::<FrameArray<OwnedFrame, 1>>(&owner, plan, false);
        } else {
            self.gather_into::<FrameArray<OwnedFrame, 16>>(&owner, plan, true);
        }
        self.end(&owner);
    }

    /// A container that overflows makes the gather flush in between; what its last flush then promises can't be told
    /// here, so only the poison of freed frames judges it.
    fn gather_into<B>(&self, owner: &Owner<W>, plan: GatherPlan, at_once: bool)
    where
        B: FrameBag<Frame = OwnedFrame> + Default,
    {
        let space = space_of(owner);
        let mut gather = Gather::new(self.flusher(), space, B::default());
        let mut done = Gathered::default();
        let last = (plan.first + plan.count).min(layout::USER_PAGES);
        self.lock(owner, false);
        for page in plan.first..last {
            if plan.tables && page % layout::PAGES_OF_REGION == 0 {
                self.gather_table(owner, layout::region_of(page), &mut gather, &mut done);
            }
            self.gather_page(owner, page, &mut gather, &mut done);
            if plan.split {
                owner.lock.unlock();
                point();
                self.lock(owner, false);
            }
        }
        // Long ranges are named as whole regions on arm64, see `Edit::widen`.
        if let Some((first, last)) = done.told {
            let (first, last) = Edit::new(owner, false).widen(first, last);
            if done.told != Some((first, last)) {
                let range = self.range(first, last - first + 1, Stride::Size4K);
                gather.changed(range);
                done.tells(&range);
            }
        }
        owner.lock.unlock();
        let told = done
            .told
            .map_or(0, |(first, last)| layout::pages_between(first, last));
        // What was cleared before is owed by the flush that follows it, which may be one that leaves lazy CPUs out: where
        // tables go, only what is named here is promised to that extent.
        let pages = if done.tables {
            told
        } else {
            told | done.cleared
        };
        let overlapped = owner.foreign(true) & !owner.foreign(false) & pages & !done.changed != 0;
        let promise = Promise {
            scope: owner.scope,
            pages: pages & !owner.foreign(false),
            hard: done.tables,
            tables: done.tables || overlapped,
        };
        let flush = (at_once && promise.pages != 0).then(|| with(|m| m.begin_flush(promise)));
        if let Some(flush) = flush.filter(|_| done.changed == 0) {
            with(|m| m.oracle.excuse(flush));
        }
        let frames = inside(|| gather.finish());
        if let Some(flush) = flush {
            complete(flush);
        }
        owner.mark_gathered(done.changed, false);
        drop(frames);
    }

    fn gather_page<B>(
        &self,
        owner: &Owner<W>,
        page: u8,
        gather: &mut Gather<'_, F, B, W>,
        done: &mut Gathered,
    ) where
        B: FrameBag<Frame = OwnedFrame> + Default,
    {
        if !owner.is_settled(page) {
            return;
        }
        let found = owner.find(page);
        let region = layout::region_of(page);
        let range = match found {
            Found::Large(..) => self.range(
                layout::region_address(region),
                layout::REGION_BYTES,
                Stride::Size2M,
            ),
            _ => self.range(
                layout::address(page),
                layout::entry_bytes(0),
                Stride::Size4K,
            ),
        };
        let mut edit = Edit::new(owner, false);
        match edit.clear(page) {
            Some(frame) => {
                owner.mark_gathered(edit.changed & !done.changed, true);
                done.changed |= edit.changed;
                done.tells(&range);
                gather.unmapped(range, OwnedFrame(frame));
            }
            None if matches!(found, Found::NoTable | Found::Nothing) => done.cleared |= 1 << page,
            None => {}
        }
    }

    fn gather_table<B>(
        &self,
        owner: &Owner<W>,
        region: u8,
        gather: &mut Gather<'_, F, B, W>,
        done: &mut Gathered,
    ) where
        B: FrameBag<Frame = OwnedFrame> + Default,
    {
        if !owner.is_region_settled(region) {
            return;
        }
        let mut edit = Edit::new(owner, false);
        let Some((table, frames)) = edit.unlink(region, false, true) else {
            return;
        };
        owner.mark_gathered(edit.changed & !done.changed, true);
        done.changed |= edit.changed;
        done.tables = true;
        let range = self.range(
            layout::region_address(region),
            layout::REGION_BYTES,
            Stride::Size4K,
        );
        done.tells(&range);
        gather.changed_with(range, ChangeFlags::TABLES_FREED);
        for frame in frames {
            gather.unmapped(range, OwnedFrame(frame));
        }
        gather.table_unlinked(range, OwnedFrame(table));
    }

    /// Clears a page under the lock, and leaves its flush for later.
    fn clear_for_later(&self, owner: Rc<Owner<W>>, page: u8) -> Option<Later<W>> {
        self.lock(&owner, false);
        let mut edit = Edit::new(&owner, false);
        if owner.is_settled(page)
            && let Some(frame) = edit.clear(page)
        {
            edit.frees.push(frame);
        }
        let later = (!edit.is_empty()).then(|| {
            let paging = self.flusher().paging();
            let (request, promise) = edit.request(paging, false, owner.foreign(true));
            (
                edit.changed,
                core::mem::take(&mut edit.frees),
                request,
                promise,
            )
        });
        if let Some((changed, ..)) = &later {
            owner.mark_plain(*changed, true);
        }
        drop(edit);
        owner.lock.unlock();
        match later {
            Some((changed, frees, request, promise)) => Some(Later {
                owner,
                changed,
                frees,
                request,
                promise,
            }),
            None => {
                self.end(&owner);
                None
            }
        }
    }

    fn members(&self, members: [(u8, u8); 3]) -> Vec<Later<W>> {
        let mut list = Vec::new();
        for (space, page) in members {
            if let Some(owner) = self.begin(space) {
                list.extend(self.clear_for_later(owner, page));
            }
        }
        list
    }

    /// Clears pages of several spaces and flushes them together.
    pub(crate) fn batch(&self, members: [(u8, u8); 3]) {
        let later = self.members(members);
        let mut list = Vec::new();
        // More than two spaces overflow it.
        let mut batch = Batch::<_, W, 2>::new(self.flusher());
        for member in &later {
            list.push(with(|m| m.begin_flush(member.promise)));
            inside(|| batch.add(space_of(&member.owner), member.request));
        }
        inside(|| batch.flush());
        drop(batch);
        for flush in list {
            complete(flush);
        }
        for member in later {
            self.settle(member);
        }
    }

    /// Starts several flushes, and ends them in another order.
    pub(crate) fn pendings(&self, members: [(u8, u8); 3], rotate: u8) {
        let later = self.members(members);
        let mut open: Vec<_> = later
            .iter()
            .map(|member| {
                (
                    with(|m| m.begin_flush(member.promise)),
                    self.start(&member.owner, member.request),
                )
            })
            .collect();
        if !open.is_empty() {
            let by = usize::from(rotate) % open.len();
            open.rotate_left(by);
        }
        inside(|| self.flusher().poll());
        for (flush, pending) in open {
            inside(|| pending.wait());
            complete(flush);
        }
        for member in later {
            self.settle(member);
        }
    }

    fn settle(&self, member: Later<W>) {
        member.owner.mark_plain(member.changed, false);
        give_back(&member.frees);
        self.end(&member.owner);
    }
}

/// A change whose flush is still to be started.
#[derive(Debug)]
struct Later<const W: usize> {
    owner: Rc<Owner<W>>,
    changed: u32,
    frees: Vec<u16>,
    request: shootdown::Request,
    promise: Promise,
}
