//! [`Config`]: what a kernel tells the arm64 flusher once, before any CPU is online.

use core::{
    fmt,
    sync::atomic::{
        AtomicU64,
        Ordering::{Relaxed, Release},
    },
};

use super::Features;
use crate::paging::{Granule, Paging};

/// The configuration of the arm64 flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "a configuration does nothing until it is given to `init`"]
pub struct Config {
    pub(super) paging: Paging,
    pub(super) reserved_root: u64,
    pub(super) ranges: bool,
    pub(super) level_hints: bool,
    #[cfg(any(loom, feature = "_sim"))]
    asid_limit: u64,
    #[cfg(any(loom, feature = "_sim"))]
    pub(super) generations_left: Option<u64>,
}

/// Why the flusher can't be initialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InitError {
    /// `init` was called before.
    AlreadyInitialized,
    /// The reserved root is not the address of a table.
    BadRoot {
        /// What was given.
        root: u64,
    },
    /// TCR says another granule than the configuration, for TTBR0 or for TTBR1: hardware would ignore range operations.
    WrongGranule,
    /// There are not enough ASIDs for every CPU to run a space, and one to spare.
    TooFewAsids {
        /// How many there are, the reserved one included.
        asids: u64,
    },
    /// The CPU runs in a translation regime that the backend does not serve.
    WrongRegime {
        /// The exception level.
        level: u8,
    },
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyInitialized => f.write_str("the flusher is initialized already"),
            Self::BadRoot { root } => write!(f, "{root:#x} is not the address of a root table"),
            Self::WrongGranule => {
                f.write_str("TCR.TG0 or TG1 is another granule than the configuration's")
            }
            Self::TooFewAsids { asids } => write!(
                f,
                "{asids} ASIDs do not suffice: each CPU needs one, and one is reserved"
            ),
            Self::WrongRegime { level } => write!(
                f,
                "EL{level} without E2H and TGE is not served: run at EL1, or at EL2 with both set"
            ),
        }
    }
}

impl core::error::Error for InitError {}

/// Bits of a TTBR that are a root address. Bit 0 is CnP; with 52-bit addresses bits 5:2 hold address bits 51:48.
pub(super) const ROOT_MASK: u64 = 0x0000_ffff_ffff_fffe;

impl Config {
    /// `paging` is the layout of TTBR0 and TTBR1 (TCR.TG0, T0SZ); `reserved_root` the physical address of a
    /// TTBR0 table without any user mapping, which CPUs without a space have loaded.
    pub const fn new(paging: Paging, reserved_root: u64) -> Self {
        Self {
            paging,
            reserved_root,
            ranges: true,
            level_hints: true,
            #[cfg(any(loom, feature = "_sim"))]
            asid_limit: u64::MAX,
            #[cfg(any(loom, feature = "_sim"))]
            generations_left: None,
        }
    }

    /// Whether range operations are used where the first CPU has them (they are unless this says no). All CPUs must
    /// have them then.
    pub const fn ranges(mut self, enable: bool) -> Self {
        self.ranges = enable;
        self
    }

    /// Whether level hints are given where the first CPU reads them (they are unless this says no). All CPUs must
    /// read them then.
    pub const fn level_hints(mut self, enable: bool) -> Self {
        self.level_hints = enable;
        self
    }

    /// Uses only the first `limit` ASIDs, so that the simulated machine and loom see them run out.
    #[cfg(any(loom, feature = "_sim"))]
    #[doc(hidden)]
    pub const fn asid_limit(mut self, limit: u64) -> Self {
        self.asid_limit = limit;
        self
    }

    /// Begins so many rollovers before the last generation, so that the simulated machine and loom see it.
    #[cfg(any(loom, feature = "_sim"))]
    #[doc(hidden)]
    pub const fn generations_left(mut self, left: u64) -> Self {
        self.generations_left = Some(left);
        self
    }

    /// How many ASIDs are used on a CPU with `features`, the reserved one included.
    pub(super) fn asids(&self, features: &Features) -> u64 {
        #[cfg(any(loom, feature = "_sim"))]
        return features.asids().min(self.asid_limit);
        #[cfg(not(any(loom, feature = "_sim")))]
        features.asids()
    }
}

/// The configuration as the flusher keeps it: written once, read everywhere.
#[derive(Debug)]
pub(super) struct Settings {
    word: AtomicU64,
    reserved_root: AtomicU64,
    #[cfg(any(loom, feature = "_sim"))]
    asids: AtomicU64,
}

const INITIALIZED: u64 = 1 << 0;
const RANGE: u64 = 1 << 1;
const LEVEL_HINT: u64 = 1 << 2;
const ASID16: u64 = 1 << 3;
const LPA2: u64 = 1 << 4;
const REPEAT: u64 = 1 << 5;
const ASID_IN_TTBR1: u64 = 1 << 6;
const WIDE: u64 = 1 << 7;
const GRANULE: u32 = 8;
/// Being initialized.
const CLAIMED: u64 = 1 << 16;

impl Settings {
    pub(super) const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            reserved_root: AtomicU64::new(0),
            #[cfg(any(loom, feature = "_sim"))]
            asids: AtomicU64::new(0),
        }
    }

    pub(super) fn set(
        &self,
        config: &Config,
        features: &Features,
        asid_in_ttbr1: bool,
    ) -> Result<(), InitError> {
        let root = config.reserved_root;
        if root & !ROOT_MASK != 0 {
            return Err(InitError::BadRoot { root });
        }
        // Claimed first: of two that initialize at once, one errs.
        let claimed = self.word.compare_exchange(0, CLAIMED, Relaxed, Relaxed);
        if claimed.is_err() {
            return Err(InitError::AlreadyInitialized);
        }
        self.reserved_root.store(root, Relaxed);
        #[cfg(any(loom, feature = "_sim"))]
        self.asids.store(config.asids(features), Relaxed);
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        let granule = match config.paging.granule() {
            Granule::Size4K => 0,
            Granule::Size16K => 1,
            Granule::Size64K => 2,
        };
        let word = INITIALIZED
            | flag(features.range, RANGE)
            | flag(features.level_hint, LEVEL_HINT)
            | flag(features.asid16, ASID16)
            | flag(features.lpa2, LPA2)
            | flag(features.repeat, REPEAT)
            | flag(asid_in_ttbr1, ASID_IN_TTBR1)
            | flag(config.paging.contains(1 << 50), WIDE)
            | granule << GRANULE;
        // Release: the root comes before.
        self.word.store(word, Release);
        Ok(())
    }

    /// A CPU was found that must repeat invalidations: from now on all do.
    pub(super) fn must_repeat(&self) {
        self.word.fetch_or(REPEAT, Relaxed);
    }

    #[inline(always)]
    fn has(&self, bit: u64) -> bool {
        self.word.load(Relaxed) & bit != 0
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.has(INITIALIZED)
    }

    #[inline]
    pub(super) fn features(&self) -> Features {
        Features {
            range: self.has(RANGE),
            level_hint: self.has(LEVEL_HINT),
            asid16: self.has(ASID16),
            lpa2: self.has(LPA2),
            repeat: self.has(REPEAT),
        }
    }

    /// How many ASIDs are used, the reserved one included.
    #[inline]
    pub(super) fn asids(&self) -> u64 {
        #[cfg(any(loom, feature = "_sim"))]
        return self.asids.load(Relaxed);
        #[cfg(not(any(loom, feature = "_sim")))]
        self.features().asids()
    }

    #[inline]
    pub(super) fn asid_in_ttbr1(&self) -> bool {
        self.has(ASID_IN_TTBR1)
    }

    #[inline]
    pub(super) fn reserved_root(&self) -> u64 {
        self.reserved_root.load(Relaxed)
    }

    #[inline]
    pub(super) fn paging(&self) -> Paging {
        let granule = match self.word.load(Relaxed) >> GRANULE & 3 {
            0 => Granule::Size4K,
            1 => Granule::Size16K,
            _ => Granule::Size64K,
        };
        if self.has(WIDE) {
            Paging::arm64_52(granule)
        } else {
            Paging::arm64(granule)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn settings_keep_what_was_configured() {
        for granule in [Granule::Size4K, Granule::Size16K, Granule::Size64K] {
            for paging in [Paging::arm64(granule), Paging::arm64_52(granule)] {
                let settings = Settings::new();
                assert!(!settings.is_initialized());
                let config = Config::new(paging, 0x4000_0000);
                let features = Features {
                    range: true,
                    asid16: true,
                    ..Features::default()
                };
                assert_eq!(settings.set(&config, &features, true), Ok(()));
                assert_eq!(settings.paging(), paging);
                assert_eq!(settings.features(), features);
                assert!(settings.asid_in_ttbr1());
                assert_eq!(
                    settings.set(&config, &features, true),
                    Err(InitError::AlreadyInitialized)
                );
            }
        }
    }

    #[test]
    fn a_bad_root_is_named() {
        let config = Config::new(Paging::arm64(Granule::Size4K), 0x4000_0001);
        let root = 0x4000_0001;
        assert_eq!(
            Settings::new().set(&config, &Features::default(), false),
            Err(InitError::BadRoot { root })
        );
    }
}
