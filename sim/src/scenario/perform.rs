//! Performs the operations of a scenario.

use super::{
    actor::{Actor, inside},
    backend::Backend,
    bulk::GatherPlan,
    edit::Edit,
    op::{Manner, Op},
    owner::Owner,
};
use crate::machine::layout;

impl<F: Backend<W>, const W: usize> Actor<'_, F, W> {
    /// Performs one operation.
    pub(crate) fn perform(&mut self, op: Op) {
        match op {
            Op::Switch { space, masked } => self.switch(space, masked),
            Op::Unload => self.unload(),
            Op::LazyEnter => self.lazy_enter(),
            Op::LazyLeave => self.lazy_leave(),
            Op::Abandon => self.abandon(),
            Op::Touch {
                page,
                write,
                demand,
            } => self.touch(page, write, demand),
            Op::KernelTouch { page, write } => self.kernel_touch(page, write),
            Op::Map {
                space,
                page,
                writable,
            } => self.map(space, page, writable),
            Op::Unmap {
                space,
                first,
                count,
                manner,
            } => {
                self.change_space(space, manner, |edit| {
                    clear_pages(edit, first, count, layout::USER_PAGES)
                });
            }
            Op::FreeTable {
                space,
                region,
                zap,
                whole,
                manner,
            } => {
                self.change_space(space, manner, |edit| free_table(edit, region, zap, whole));
            }
            Op::FreeTop { space, manner } => self.change_space(space, manner, |edit| {
                if (0..layout::USER_REGIONS).all(|region| edit.owner.is_region_settled(region)) {
                    edit.unlink_top();
                }
            }),
            Op::Protect {
                space,
                first,
                count,
                manner,
            } => self.change_space(space, manner, |edit| {
                for page in first..(first + count).min(layout::USER_PAGES) {
                    if edit.owner.is_settled(page) {
                        edit.protect(page);
                    }
                }
            }),
            Op::Permit { space, page } => {
                self.change_space(
                    space,
                    Manner {
                        outside: false,
                        masked: false,
                        all: false,
                    },
                    |edit| {
                        if edit.owner.is_region_settled(layout::region_of(page)) {
                            edit.permit(page);
                        }
                    },
                );
            }
            Op::Replace {
                space,
                page,
                manner,
            } => self.change_space(space, manner, |edit| {
                if edit.owner.is_settled(page) {
                    edit.exchange(page);
                }
            }),
            Op::Resize {
                space,
                region,
                manner,
            } => self.change_space(space, manner, |edit| {
                if edit.owner.is_region_settled(region) {
                    edit.resize(region);
                }
            }),
            Op::KernelMap { page } => self.map_in(&self.world.kernel, page, true),
            Op::KernelUnmap {
                first,
                count,
                manner,
            } => {
                self.change(&self.world.kernel, manner, |edit| {
                    clear_pages(edit, first, count, layout::PAGES)
                });
            }
            Op::KernelFreeTable { region, manner } => {
                self.change(&self.world.kernel, manner, |edit| {
                    free_table(edit, region, false, true)
                });
            }
            Op::Gather {
                space,
                first,
                count,
                tables,
                split,
                small,
            } => {
                self.gather(
                    space,
                    GatherPlan {
                        first,
                        count,
                        tables,
                        split,
                    },
                    small,
                );
            }
            Op::Batch { members } => self.batch(members),
            Op::Retire { space, eager } => self.retire(space, eager),
            Op::ShareWithDevice { space } => self.share_with_device(space),
            Op::Pin { space, global } => self.pin(space, global),
            Op::OfflineOnline => self.offline_online(),
            Op::PollMasked { turns } => self.poll_masked(turns),
            Op::Pendings { members, rotate } => self.pendings(members, rotate),
            Op::FlushLocal { page } => inside(|| self.flush_local(page)),
            Op::Halting {
                masked,
                nested,
                page,
                work,
            } => self.halting(masked, nested, page, work),
            Op::FlushVast { space, pages } => self.flush_vast(space, pages),
            Op::UnmapLarge {
                space,
                region,
                manner,
            } => self.change_space(space, manner, |edit| unmap_large(edit, region)),
            Op::Spurious {
                space,
                first,
                count,
                freed,
                manner,
            } => self.change_space(space, manner, |edit| {
                for page in first..(first + count).min(layout::USER_PAGES) {
                    edit.include(page);
                }
                if freed {
                    edit.frees_tables();
                }
            }),
        }
    }

    fn change_space(&self, space: u8, manner: Manner, change: impl FnOnce(&mut Edit<'_, W>)) {
        if let Some(owner) = self.begin(space) {
            let owner: &Owner<W> = &owner;
            self.change(owner, manner, change);
            self.end(owner);
        }
    }
}

fn clear_pages<const W: usize>(edit: &mut Edit<'_, W>, first: u8, count: u8, limit: u8) {
    for page in first..(first + count).min(limit) {
        if edit.owner.is_settled(page)
            && let Some(frame) = edit.clear(page)
        {
            edit.frees.push(frame);
        }
    }
}

/// Clears the large pages that stand side by side around `region`; if it has none, it gets one.
fn unmap_large<const W: usize>(edit: &mut Edit<'_, W>, region: u8) {
    let is_large = |region: u8| edit.owner.is_region_settled(region) && edit.is_large(region);
    if !is_large(region) {
        if edit.owner.is_region_settled(region) {
            edit.resize(region);
        }
        return;
    }
    let first = (0..region)
        .rev()
        .take_while(|region| is_large(*region))
        .count() as u8;
    let after = region..layout::USER_REGIONS;
    let last = after.take_while(|region| is_large(*region)).count() as u8;
    for region in region - first..region + last {
        if let Some(frame) = edit.clear(region * layout::PAGES_OF_REGION) {
            edit.frees.push(frame);
        }
    }
}

fn free_table<const W: usize>(edit: &mut Edit<'_, W>, region: u8, zap: bool, whole: bool) {
    if edit.owner.is_region_settled(region)
        && let Some((table, frames)) = edit.unlink(region, zap, whole)
    {
        edit.frees.extend(frames);
        edit.frees.push(table);
    }
}
