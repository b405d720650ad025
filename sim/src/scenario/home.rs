//! arm64: spaces that one CPU mostly uses, so that flushes stay there, and others now and then.

use super::{backend::Setup, op::Op};
use crate::rng::Rng;

/// One in so many operations shares a space with a device.
const SHARE: u32 = 60;

impl Op {
    /// The operation as CPU `index` of `cpus` does it.
    pub(crate) fn settle(
        mut self,
        rng: &mut Rng,
        setup: &Setup,
        index: usize,
        cpus: usize,
    ) -> Self {
        if rng.chance(1, SHARE) {
            return Self::ShareWithDevice {
                space: rng.below(u32::from(setup.spaces)) as u8,
            };
        }
        let own: Vec<u8> = (0..setup.spaces).skip(index).step_by(cpus).collect();
        if setup.homes
            && rng.chance(7, 8)
            && let Some(space) = self.space()
            && !own.is_empty()
        {
            *space = rng.pick(&own);
        }
        self
    }

    /// The space that a CPU chooses to run or to change.
    pub(super) fn space(&mut self) -> Option<&mut u8> {
        match self {
            Self::Switch { space, .. }
            | Self::Map { space, .. }
            | Self::Unmap { space, .. }
            | Self::FreeTable { space, .. }
            | Self::FreeTop { space, .. }
            | Self::Protect { space, .. }
            | Self::Permit { space, .. }
            | Self::Replace { space, .. }
            | Self::Resize { space, .. }
            | Self::Gather { space, .. }
            | Self::Spurious { space, .. } => Some(space),
            _ => None,
        }
    }
}
