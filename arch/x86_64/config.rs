//! [`Config`]: what a kernel tells the x86_64 flusher once, before any CPU is online.

use core::{
    fmt,
    sync::atomic::{
        AtomicU64,
        Ordering::{Relaxed, Release},
    },
};

use super::{
    broadcast::GLOBAL_PCIDS,
    detect::{Features, GlobalInvlpg},
};
use crate::paging::Paging;

/// Whether kernel and user run on separate page tables (page-table isolation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Isolation {
    /// They share one table. The only kind served so far.
    #[default]
    None,
    /// They have one each, with a pair of PCIDs. Not served yet: refused when the flusher is initialized, since a flush
    /// would miss the user half.
    Pairs,
}

/// The configuration of the x86_64 flusher.
///
/// ```
/// use shootdown::x86_64::{Config, Features};
///
/// let config = Config::new(Features::default(), 0x1000).ceiling(64);
/// assert!(config.check().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "a configuration does nothing until it is given to `init`"]
pub struct Config {
    features: Features,
    kernel_root: u64,
    pcid: bool,
    kernel_global: bool,
    ceiling: u64,
    trim_after: u64,
    isolation: Isolation,
    broadcast_above: u16,
    global_pcids: u16,
}

/// Why the flusher can't be initialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InitError {
    /// `init` was called before.
    AlreadyInitialized,
    /// The kernel's root is not the address of a table.
    BadRoot {
        /// What was given.
        root: u64,
    },
    /// PCIDs were asked for, which this CPU does not have.
    NoPcid,
    /// PCIDs were asked for on a part whose INVLPG misses global entries while PCIDs are enabled.
    PcidMissesGlobals,
    /// The ceiling is 0 or more than [`Config::MAX_CEILING`].
    BadCeiling {
        /// What was given, in pages.
        pages: u64,
    },
    /// The courier broadcasts, but this CPU has no INVLPGB.
    NoInvlpgb,
    /// The threshold is 0 or more than [`Config::MAX_BROADCAST_ABOVE`].
    BadThreshold {
        /// What was given, in CPUs.
        cpus: u16,
    },
    /// There are not so many global PCIDs, see [`Config::GLOBAL_PCIDS`].
    BadGlobalPcids {
        /// What was given.
        count: u16,
    },
    /// Page-table isolation by pairs of PCIDs is not served.
    Isolated,
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyInitialized => f.write_str("the flusher is initialized already"),
            Self::BadRoot { root } => write!(f, "{root:#x} is not the address of a root table"),
            Self::NoPcid => f.write_str("this CPU has no PCIDs: leave `pcid` out"),
            Self::PcidMissesGlobals => f.write_str(
                "INVLPG of this part misses global entries while PCIDs are enabled: leave `pcid` out",
            ),
            Self::BadCeiling { pages } => {
                let max = Config::MAX_CEILING;
                write!(f, "a ceiling of {pages} pages is not in 1..={max}")
            }
            Self::NoInvlpgb => f.write_str(
                "this CPU has no INVLPGB: choose a courier that interrupts, or `Auto`",
            ),
            Self::BadThreshold { cpus } => {
                let max = Config::MAX_BROADCAST_ABOVE;
                write!(f, "a threshold of {cpus} CPUs is not in 1..={max}")
            }
            Self::BadGlobalPcids { count } => {
                let max = Config::GLOBAL_PCIDS;
                write!(f, "{count} global PCIDs are more than the {max} that there are")
            }
            Self::Isolated => f.write_str(
                "page-table isolation by pairs of PCIDs is not served: a flush would miss the user half",
            ),
        }
    }
}

impl core::error::Error for InitError {}

/// Bits of a CR3 that are a root address.
pub(super) const ROOT_MASK: u64 = 0x000f_ffff_ffff_f000;

impl Config {
    /// Ranges of more pages than this are flushed as a whole, unless [`ceiling`](Self::ceiling) says otherwise. A
    /// single-page flush costs about 100 ns, and a whole one what refilling costs; Linux has found 33 to be a fair
    /// bound (`tlb_single_page_flush_ceiling`, arch/x86/mm/tlb.c).
    pub const DEFAULT_CEILING: u64 = 33;

    /// The largest ceiling.
    pub const MAX_CEILING: u64 = 512;

    /// Once flushes of a space have found this many CPUs away from it (they had it loaded before, now another), they
    /// are asked to leave its mask. Trimming too eagerly costs more than it saves: a CPU that comes back must
    /// enter the mask again with a locked instruction (13 % to 41 % were measured in Linux).
    pub const DEFAULT_TRIM_AFTER: u64 = 256;

    /// A space that more CPUs than this run gets a global PCID, unless
    /// [`broadcast_above`](Self::broadcast_above) says otherwise (Linux arch/x86/mm/tlb.c).
    pub const DEFAULT_BROADCAST_ABOVE: u16 = 3;

    /// The largest threshold.
    pub const MAX_BROADCAST_ABOVE: u16 = 4096;

    /// How many global PCIDs there are: those that the kernel's root and the CPUs' own slots leave.
    pub const GLOBAL_PCIDS: u16 = GLOBAL_PCIDS;

    /// `features` from `detect`, `kernel_root` the physical address of the table that maps
    /// the kernel, all its code and stacks, and no user memory; CPUs without a space in use have it loaded. PCIDs are used where the CPU has them and
    /// they are safe.
    pub const fn new(features: Features, kernel_root: u64) -> Self {
        Self {
            features,
            kernel_root,
            pcid: features.pcid && matches!(features.global_invlpg, GlobalInvlpg::Works),
            kernel_global: false,
            ceiling: Self::DEFAULT_CEILING,
            trim_after: Self::DEFAULT_TRIM_AFTER,
            isolation: Isolation::None,
            broadcast_above: Self::DEFAULT_BROADCAST_ABOVE,
            global_pcids: Self::GLOBAL_PCIDS,
        }
    }

    /// Uses PCIDs, or does not.
    pub const fn pcid(mut self, enable: bool) -> Self {
        self.pcid = enable;
        self
    }

    /// Declares that EVERY kernel mapping is global (bit G) and CR4.PGE is set. Only then can a kernel range be
    /// dropped page by page while PCIDs are enabled, since INVLPG drops globals and the current PCID only.
    pub const fn kernel_mappings_global(mut self, global: bool) -> Self {
        self.kernel_global = global;
        self
    }

    /// Ranges of more than `pages` pages are flushed as a whole.
    pub const fn ceiling(mut self, pages: u64) -> Self {
        self.ceiling = pages;
        self
    }

    /// See [`DEFAULT_TRIM_AFTER`](Self::DEFAULT_TRIM_AFTER); in CPUs found away.
    pub const fn trim_after(mut self, cpus: u64) -> Self {
        self.trim_after = cpus;
        self
    }

    /// Where the courier broadcasts (INVLPGB): gives a space a global PCID once a flush finds that more than `cpus` CPUs
    /// run it, as long as no more than half the PCIDs are in use. A space keeps it for life, so that none
    /// goes to and fro.
    ///
    /// The threshold is `cpus * 2^floor(log2(PCIDs / PCIDs still available))`: it doubles each time that those which are
    /// available have halved. With the default of 3 and all 4088 PCIDs:
    ///
    /// | available | a space becomes global above |
    /// |---|---|
    /// | 4088 to 2045 | 3 CPUs |
    /// | 2044 to 1023 | 6 |
    /// | 1022 to 512 | 12 |
    /// | 511 to 256 | 24 |
    /// | 255 to 128 | 48 |
    /// | 127 to 64 | 96 |
    /// | 63 to 32 | 192 |
    /// | fewer | 384 and more |
    /// | none | never |
    ///
    /// [`Tlb::make_global`](super::Tlb::make_global) and [`Tlb::keep_local`](super::Tlb::keep_local) override it for a
    /// space.
    pub const fn broadcast_above(mut self, cpus: u16) -> Self {
        self.broadcast_above = cpus;
        self
    }

    /// Uses only `count` global PCIDs; with 0 only the kernel's mappings are broadcast. For hypervisors that want PCIDs
    /// themselves, and for tests that want them to run out.
    pub const fn global_pcids(mut self, count: u16) -> Self {
        self.global_pcids = count;
        self
    }

    /// Says aloud which page-table isolation the kernel has.
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    pub(super) const fn features(&self) -> &Features {
        &self.features
    }

    pub(super) const fn has_pcid(&self) -> bool {
        self.pcid
    }

    pub(super) const fn broadcast_above_cpus(&self) -> u16 {
        self.broadcast_above
    }

    pub(super) const fn global_pcid_count(&self) -> u16 {
        self.global_pcids
    }

    /// Whether this can be used.
    ///
    /// # Errors
    ///
    /// See [`InitError`].
    pub const fn check(&self) -> Result<(), InitError> {
        if self.kernel_root & !ROOT_MASK != 0 {
            return Err(InitError::BadRoot {
                root: self.kernel_root,
            });
        }
        if self.pcid && !self.features.pcid {
            return Err(InitError::NoPcid);
        }
        if self.pcid && !matches!(self.features.global_invlpg, GlobalInvlpg::Works) {
            return Err(InitError::PcidMissesGlobals);
        }
        if self.ceiling == 0 || self.ceiling > Self::MAX_CEILING {
            return Err(InitError::BadCeiling {
                pages: self.ceiling,
            });
        }
        if self.broadcast_above == 0 || self.broadcast_above > Self::MAX_BROADCAST_ABOVE {
            return Err(InitError::BadThreshold {
                cpus: self.broadcast_above,
            });
        }
        if self.global_pcids > Self::GLOBAL_PCIDS {
            return Err(InitError::BadGlobalPcids {
                count: self.global_pcids,
            });
        }
        if matches!(self.isolation, Isolation::Pairs) {
            return Err(InitError::Isolated);
        }
        Ok(())
    }
}

/// The configuration as the flusher keeps it: written once, read everywhere.
#[derive(Debug)]
pub(super) struct Settings {
    /// Flags in the low bits, the ceiling from bit 16, the trim threshold from bit 32; 0 is not initialized.
    word: AtomicU64,
    kernel_root: AtomicU64,
}

/// A copy of the flags and thresholds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode(u64);

const INITIALIZED: u64 = 1 << 0;
const PCID: u64 = 1 << 1;
const INVPCID: u64 = 1 << 2;
const KERNEL_GLOBAL: u64 = 1 << 3;
const LA57: u64 = 1 << 4;
/// Being initialized.
const CLAIMED: u64 = 1 << 5;

impl Settings {
    pub(super) const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            kernel_root: AtomicU64::new(0),
        }
    }

    /// Takes `config`, and calls `configure` for what is kept elsewhere, if it is the first.
    pub(super) fn set(&self, config: &Config, configure: impl FnOnce()) -> Result<(), InitError> {
        config.check()?;
        // Claimed first: of two that initialize at once, one errs.
        let claimed = self.word.compare_exchange(0, CLAIMED, Relaxed, Relaxed);
        if claimed.is_err() {
            return Err(InitError::AlreadyInitialized);
        }
        configure();
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        self.kernel_root.store(config.kernel_root, Relaxed);
        let word = INITIALIZED
            | flag(config.pcid, PCID)
            | flag(config.features.invpcid, INVPCID)
            | flag(config.kernel_global, KERNEL_GLOBAL)
            | flag(config.features.la57_enabled, LA57)
            | config.ceiling << 16
            | config.trim_after.min(u64::from(u32::MAX)) << 32;
        // Release: the root comes before, and what `configure` has stored.
        self.word.store(word, Release);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn mode(&self) -> Mode {
        Mode(self.word.load(Relaxed))
    }

    #[inline(always)]
    pub(super) fn kernel_root(&self) -> u64 {
        self.kernel_root.load(Relaxed)
    }
}

impl Mode {
    pub(super) const fn is_initialized(self) -> bool {
        self.0 & INITIALIZED != 0
    }

    #[inline(always)]
    pub(super) const fn pcid(self) -> bool {
        self.0 & PCID != 0
    }

    pub(super) const fn invpcid(self) -> bool {
        self.0 & INVPCID != 0
    }

    pub(super) const fn kernel_global(self) -> bool {
        self.0 & KERNEL_GLOBAL != 0
    }

    /// In pages.
    #[inline(always)]
    pub(super) const fn ceiling(self) -> u64 {
        self.0 >> 16 & 0xffff
    }

    /// In CPUs found away.
    #[inline(always)]
    pub(super) const fn trim_after(self) -> u64 {
        self.0 >> 32
    }

    pub(super) const fn paging(self) -> Paging {
        if self.0 & LA57 != 0 {
            Paging::X86_5_LEVEL
        } else {
            Paging::X86_4_LEVEL
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PCID: Features = Features {
        pcid: true,
        invpcid: true,
        la57_enabled: false,
        global_invlpg: GlobalInvlpg::Works,
        invlpgb: None,
    };

    #[test]
    fn bad_configurations_are_named() {
        let none = Features::default();
        let broken = Features {
            global_invlpg: GlobalInvlpg::Misses,
            ..PCID
        };
        let check = |config: Config| config.check();
        assert_eq!(
            check(Config::new(none, 0x1001)),
            Err(InitError::BadRoot { root: 0x1001 })
        );
        assert_eq!(
            check(Config::new(none, 0).pcid(true)),
            Err(InitError::NoPcid)
        );
        assert_eq!(
            check(Config::new(broken, 0).pcid(true)),
            Err(InitError::PcidMissesGlobals)
        );
        assert!(!Config::new(broken, 0).pcid);
        for pages in [0, 513] {
            assert_eq!(
                check(Config::new(none, 0).ceiling(pages)),
                Err(InitError::BadCeiling { pages })
            );
        }
        for cpus in [0, 4097] {
            assert_eq!(
                check(Config::new(none, 0).broadcast_above(cpus)),
                Err(InitError::BadThreshold { cpus })
            );
        }
        assert_eq!(
            check(Config::new(none, 0).global_pcids(4089)),
            Err(InitError::BadGlobalPcids { count: 4089 })
        );
        assert_eq!(
            check(Config::new(none, 0).isolation(Isolation::Pairs)),
            Err(InitError::Isolated)
        );
    }

    #[test]
    fn settings_are_set_once() {
        let settings = Settings::new();
        let config = Config::new(PCID, 0x7000).ceiling(512).trim_after(9);
        assert!(settings.set(&config, || ()).is_ok());
        let mode = settings.mode();
        assert!(mode.pcid() && mode.invpcid() && !mode.kernel_global());
        assert_eq!((mode.ceiling(), mode.trim_after()), (512, 9));
        assert_eq!(settings.kernel_root(), 0x7000);
        let again = settings.set(&config, || panic!("configured twice"));
        assert_eq!(again, Err(InitError::AlreadyInitialized));
    }
}
