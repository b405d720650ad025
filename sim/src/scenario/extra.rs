//! x86: operations in the place of usual ones, for waiting CPUs and long lists.

use super::{
    actor::Work,
    backend::Setup,
    op::{Manner, Op},
};
use crate::{
    machine::{hypervisor::Kind, layout},
    rng::Rng,
};

/// Of 64 operations under Hyper-V, how many are of large pages, and one in so many of these is of very many.
const LARGE: u32 = 6;
const VAST: u32 = 6;

impl Op {
    /// An operation in the place of the one that was drawn, now and then.
    pub(crate) fn extra(rng: &mut Rng, setup: &Setup) -> Option<Self> {
        let lists = matches!(
            setup.machine.map(|machine| machine.kind),
            Some(Kind::HyperV { .. })
        );
        let large = if lists { LARGE } else { 0 };
        if setup.halting + large == 0 {
            return None;
        }
        let kind = rng.below(64);
        let page = match setup.hot {
            Some([first, second, _]) if rng.chance(3, 4) => rng.pick(&[first, second]),
            _ => rng.below(u32::from(layout::USER_PAGES)) as u8,
        };
        if kind < setup.halting {
            return Some(Self::Halting {
                masked: rng.chance(1, 2),
                nested: rng.chance(1, 3),
                page,
                work: match rng.below(4) {
                    0 => Work::Touch,
                    1 => Work::Flush,
                    _ => Work::Steps(rng.below(40) as u8),
                },
            });
        }
        if kind >= setup.halting + large {
            return None;
        }
        let space = if rng.chance(1, 2) {
            0
        } else {
            rng.below(u32::from(setup.spaces)) as u8
        };
        if rng.chance(1, VAST) {
            return Some(Self::FlushVast {
                space,
                pages: 504 + rng.below(9) as u16,
            });
        }
        Some(Self::UnmapLarge {
            space,
            region: layout::region_of(page),
            manner: Manner {
                outside: false,
                masked: rng.chance(1, 3),
                all: false,
            },
        })
    }
}
