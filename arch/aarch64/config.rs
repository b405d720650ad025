//! [`Config`]: what a kernel tells the arm64 flusher once, before any CPU is online.

use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::addr::{Granule, Paging};

/// The configuration of the arm64 flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "a configuration does nothing until it is given to `init`"]
pub struct Config {
    pub(super) paging: Paging,
    pub(super) reserved_root: u64,
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
    /// TCR.A1 is set: the ASID is taken from TTBR1, which the flusher does not write.
    AsidInTtbr1,
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
            Self::AsidInTtbr1 => f.write_str("TCR.A1 is set: clear it, the ASID goes into TTBR0"),
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
        }
    }
}

/// The configuration as the flusher keeps it: written once, read everywhere.
#[derive(Debug)]
pub(super) struct Settings {
    /// [`Paging`] in the low 16 bits, the number of ASIDs from bit 32; 0 is not initialized.
    word: AtomicU64,
    reserved_root: AtomicU64,
}

impl Settings {
    pub(super) const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            reserved_root: AtomicU64::new(0),
        }
    }

    pub(super) fn set(&self, config: &Config, asids: u64) -> Result<(), InitError> {
        let root = config.reserved_root;
        if root & !ROOT_MASK != 0 {
            return Err(InitError::BadRoot { root });
        }
        if self.is_initialized() {
            return Err(InitError::AlreadyInitialized);
        }
        self.reserved_root.store(root, Relaxed);
        let paging = match (config.paging.granule(), config.paging.contains(1 << 50)) {
            (Granule::Size4K, false) => 0,
            (Granule::Size16K, false) => 1,
            (Granule::Size64K, false) => 2,
            (Granule::Size4K, true) => 4,
            (Granule::Size16K, true) => 5,
            (Granule::Size64K, true) => 6,
        };
        self.word.store(asids << 32 | paging, Relaxed);
        Ok(())
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.asids() != 0
    }

    /// How many ASIDs there are, the reserved one included.
    pub(super) fn asids(&self) -> u64 {
        self.word.load(Relaxed) >> 32
    }

    pub(super) fn reserved_root(&self) -> u64 {
        self.reserved_root.load(Relaxed)
    }

    pub(super) fn paging(&self) -> Paging {
        let word = self.word.load(Relaxed);
        let granule = match word & 3 {
            0 => Granule::Size4K,
            1 => Granule::Size16K,
            _ => Granule::Size64K,
        };
        if word & 4 == 0 {
            Paging::arm64(granule)
        } else {
            Paging::arm64_52(granule)
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
                assert_eq!(settings.set(&config, 256), Ok(()));
                assert_eq!(settings.paging(), paging);
                assert_eq!(settings.asids(), 256);
                assert_eq!(
                    settings.set(&config, 256),
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
            Settings::new().set(&config, 256),
            Err(InitError::BadRoot { root })
        );
    }
}
