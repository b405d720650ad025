//! What the CPUs of a scenario do: operations, drawn from the seed.

use crate::{
    machine::layout,
    rng::Rng,
    scenario::{actor::Work, backend::Setup},
};

/// How an operation goes about its flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// The table lock is dropped before the wait.
    pub outside: bool,
    /// Interrupts are off throughout.
    pub masked: bool,
    /// Everything is flushed instead of a range.
    pub all: bool,
}

/// One operation of one CPU. Spaces and pages are numbers; what they are at that moment decides what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Switch {
        space: u8,
        masked: bool,
    },
    Unload,
    LazyEnter,
    LazyLeave,
    /// The CPU will not come back to the space that it is lazy in.
    Abandon,
    /// User accesses.
    Touch {
        page: u8,
        write: bool,
        demand: bool,
    },
    KernelTouch {
        page: u8,
        write: bool,
    },
    Map {
        space: u8,
        page: u8,
        writable: bool,
    },
    Unmap {
        space: u8,
        first: u8,
        count: u8,
        manner: Manner,
    },
    /// Unlinks a region's table; the flush is for the whole region or only for what was mapped.
    FreeTable {
        space: u8,
        region: u8,
        zap: bool,
        whole: bool,
        manner: Manner,
    },
    FreeTop {
        space: u8,
        manner: Manner,
    },
    Protect {
        space: u8,
        first: u8,
        count: u8,
        manner: Manner,
    },
    Permit {
        space: u8,
        page: u8,
    },
    /// Another frame, of another owner.
    Replace {
        space: u8,
        page: u8,
        manner: Manner,
    },
    /// Splits a large page, or makes one of small ones.
    Resize {
        space: u8,
        region: u8,
        manner: Manner,
    },
    KernelMap {
        page: u8,
    },
    KernelUnmap {
        first: u8,
        count: u8,
        manner: Manner,
    },
    KernelFreeTable {
        region: u8,
        manner: Manner,
    },
    Gather {
        space: u8,
        first: u8,
        count: u8,
        tables: bool,
        split: bool,
        small: bool,
    },
    Batch {
        members: [(u8, u8); 3],
    },
    /// If `eager`, even while other CPUs wait for flushes of it or switch to it.
    Retire {
        space: u8,
        eager: bool,
    },
    OfflineOnline,
    /// Polls with interrupts off, as in a spin lock.
    PollMasked {
        turns: u8,
    },
    /// Several flushes are started, then ended in another order.
    Pendings {
        members: [(u8, u8); 3],
        rotate: u8,
    },
    FlushLocal {
        page: u8,
    },
    /// arm64: a device uses the space's tables from now on.
    ShareWithDevice {
        space: u8,
    },
    /// INVLPGB: the kernel says that the space shall have a global PCID, or shall not.
    Pin {
        space: u8,
        global: bool,
    },
    /// A critical section of a lock whose waiters halt, interrupts on or off.
    Halting {
        masked: bool,
        nested: bool,
        page: u8,
        work: Work,
    },
    /// A flush of many large pages, without any change.
    FlushVast {
        space: u8,
        pages: u16,
    },
    /// Large pages side by side are unmapped together, or a region gets one.
    UnmapLarge {
        space: u8,
        region: u8,
        manner: Manner,
    },
    /// A flush without any change.
    Spurious {
        space: u8,
        first: u8,
        count: u8,
        freed: bool,
        manner: Manner,
    },
}

/// How often each kind of operation is drawn, in one run.
#[derive(Clone, Debug)]
pub(crate) struct Weights([u32; KINDS]);

const KINDS: usize = 24;

/// The usual weights; each run leaves some kinds out and prefers others.
const USUAL: [u32; KINDS] = [
    8, 1, 4, 4, 1, 8, 2, 6, 10, 4, 1, 3, 2, 2, 3, 2, 3, 2, 6, 2, 2, 1, 2, 3,
];

impl Weights {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut weights = USUAL.map(|usual| usual * rng.pick(&[0, 1, 1, 1, 3]));
        if rng.chance(1, 2) {
            // A few kinds only, which meet the more often.
            let few: [usize; 4] = core::array::from_fn(|_| rng.below(KINDS as u32) as usize);
            for (kind, weight) in weights.iter_mut().enumerate() {
                *weight = if few.contains(&kind) {
                    USUAL[kind].max(4)
                } else {
                    0
                };
            }
        }
        // Something to flush, and someone to flush it from.
        for always in [0, 5, 7, 8] {
            weights[always] = weights[always].max(USUAL[always]);
        }
        Self(weights)
    }

    fn kind(&self, rng: &mut Rng) -> usize {
        let mut left = rng.below(self.0.iter().sum());
        self.0
            .iter()
            .position(|weight| {
                let found = left < *weight;
                left = left.wrapping_sub(*weight);
                found
            })
            .unwrap_or(0)
    }
}

impl Op {
    /// An operation that flushes, or prepares one that does.
    pub(crate) fn insist(rng: &mut Rng, number: u16) -> Self {
        let page = rng.below(u32::from(layout::USER_PAGES)) as u8;
        if number.is_multiple_of(2) {
            return Self::Map {
                space: 0,
                page,
                writable: true,
            };
        }
        let manner = Manner {
            outside: false,
            masked: false,
            all: false,
        };
        Self::Unmap {
            space: 0,
            first: 0,
            count: layout::USER_PAGES,
            manner,
        }
    }

    /// The next operation.
    pub(crate) fn draw(rng: &mut Rng, weights: &Weights, setup: &Setup) -> Self {
        let manner = Manner {
            outside: rng.chance(1, 3),
            masked: rng.chance(1, 3),
            all: rng.chance(1, 8),
        };
        // Half of all operations are on the first space, so that CPUs meet.
        let space = |rng: &mut Rng| {
            if rng.chance(1, 2) {
                0
            } else {
                rng.below(u32::from(setup.spaces)) as u8
            }
        };
        let page = |rng: &mut Rng| match setup.hot {
            Some([first, second, _]) if rng.chance(3, 4) => rng.pick(&[first, second]),
            _ => rng.below(u32::from(layout::USER_PAGES)) as u8,
        };
        let region = |rng: &mut Rng| layout::region_of(page(rng));
        let kernel_page = |rng: &mut Rng| match setup.hot {
            Some([_, _, kernel]) if rng.chance(3, 4) => kernel,
            _ => {
                layout::USER_PAGES + rng.below(u32::from(layout::PAGES - layout::USER_PAGES)) as u8
            }
        };
        let count = |rng: &mut Rng| rng.pick(&[1, 1, 1, 2, 2, 4, 6]);
        match weights.kind(rng) {
            0 => Self::Switch {
                space: space(rng),
                masked: manner.masked,
            },
            1 => Self::Unload,
            2 => Self::LazyEnter,
            3 => Self::LazyLeave,
            4 => Self::Abandon,
            5 => Self::Touch {
                page: page(rng),
                write: rng.chance(1, 2),
                demand: rng.chance(1, 3),
            },
            6 => Self::KernelTouch {
                page: kernel_page(rng),
                write: rng.chance(1, 2),
            },
            7 => Self::Map {
                space: space(rng),
                page: page(rng),
                writable: rng.chance(2, 3),
            },
            8 => Self::Unmap {
                space: space(rng),
                first: page(rng),
                count: count(rng),
                manner,
            },
            9 => Self::FreeTable {
                space: space(rng),
                region: region(rng),
                zap: rng.chance(1, 2),
                whole: rng.chance(1, 2),
                manner,
            },
            10 => Self::FreeTop {
                space: space(rng),
                manner,
            },
            11 => Self::Protect {
                space: space(rng),
                first: page(rng),
                count: count(rng),
                manner,
            },
            12 => Self::Permit {
                space: space(rng),
                page: page(rng),
            },
            13 => Self::Replace {
                space: space(rng),
                page: page(rng),
                manner,
            },
            14 => Self::Resize {
                space: space(rng),
                region: region(rng),
                manner,
            },
            15 => Self::KernelMap {
                page: kernel_page(rng),
            },
            16 => Self::KernelUnmap {
                first: kernel_page(rng),
                count: count(rng),
                manner,
            },
            17 => Self::KernelFreeTable {
                region: layout::region_of(kernel_page(rng)),
                manner,
            },
            18 => Self::Gather {
                space: space(rng),
                first: page(rng),
                count: count(rng),
                tables: rng.chance(1, 2),
                split: rng.chance(1, 2),
                small: rng.chance(1, 4),
            },
            19 => Self::Batch {
                members: core::array::from_fn(|_| (space(rng), page(rng))),
            },
            20 => Self::Retire {
                space: rng.below(u32::from(setup.spaces)) as u8,
                eager: rng.chance(3, 4),
            },
            21 => Self::OfflineOnline,
            22 if rng.chance(1, 2) => Self::PollMasked {
                turns: rng.below(6) as u8,
            },
            22 if rng.chance(1, 2) => Self::FlushLocal { page: page(rng) },
            22 => Self::Spurious {
                space: space(rng),
                first: page(rng),
                count: count(rng),
                freed: rng.chance(1, 3),
                manner,
            },
            _ => Self::Pendings {
                members: core::array::from_fn(|_| (space(rng), page(rng))),
                rotate: rng.below(3) as u8,
            },
        }
    }
}
