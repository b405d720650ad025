//! INVLPGB: CPUs that wander from space to space, so that several run one at a time, and spaces that end behind them, so
//! that global PCIDs run out and are reset.

use super::{backend::Setup, op::Op};
use crate::rng::Rng;

/// A CPU stays in a space for so many operations.
const STAY: u16 = 8;

impl Op {
    /// The operation with this number, as a CPU does it.
    pub(crate) fn wander(mut self, rng: &mut Rng, setup: &Setup, number: u16) -> Self {
        let spaces = u16::from(setup.spaces);
        let here = (number / STAY) % spaces;
        let behind = (here + spaces - 1) % spaces;
        let near = |rng: &mut Rng, space: u16| {
            if setup.nomads && rng.chance(3, 4) {
                space as u8
            } else {
                rng.below(u32::from(spaces)) as u8
            }
        };
        match rng.below(24) {
            0 => {
                return Self::Pin {
                    space: near(rng, here),
                    global: rng.chance(2, 3),
                };
            }
            1 | 2 => {
                return Self::Retire {
                    space: near(rng, behind),
                    eager: rng.chance(3, 4),
                };
            }
            3 => {
                return Self::Switch {
                    space: near(rng, here),
                    masked: rng.chance(1, 3),
                };
            }
            4..=7 if setup.idlers => return Self::LazyEnter,
            _ => {}
        }
        if setup.nomads
            && let Some(space) = self.space()
        {
            *space = near(rng, here);
        }
        self
    }
}
