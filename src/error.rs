//! What can go wrong when a flusher is set up, or a CPU or a space comes or goes.

use core::fmt;

use crate::cpus::{CpuOutOfRange, CpuSet};

/// Why a CPU can't come online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum OnlineError {
    /// The flusher's `init` was not called.
    NotInitialized,
    /// The platform named a CPU that it does not have.
    OutOfRange(CpuOutOfRange),
    /// Another flusher has brought CPUs of this platform online: a platform serves one flusher.
    OtherFlusher,
    /// The CPU is online already.
    AlreadyOnline {
        /// The CPU.
        cpu: usize,
    },
    /// The kernel's own root is not loaded.
    NotKernelRoot {
        /// The root that is loaded.
        loaded: u64,
    },
    /// The kernel's mappings were declared global, but global pages are off on this CPU (CR4.PGE).
    NoGlobalPages {
        /// The CPU.
        cpu: usize,
    },
    /// The CPU's translation features differ from those of the first CPU.
    UnequalFeatures {
        /// The CPU.
        cpu: usize,
        /// What this CPU has, in the architecture's own encoding.
        has: u64,
        /// What the first CPU had.
        expected: u64,
    },
    /// The CPU shares its TLB with others (TTBR1.CnP): a local flush would not be local, and its ASIDs not its own.
    SharedTlb {
        /// The CPU.
        cpu: usize,
    },
    /// The CPU runs in a translation regime that the backend does not serve.
    WrongRegime {
        /// The exception level.
        level: u8,
    },
}

impl fmt::Display for OnlineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInitialized => {
                f.write_str("the flusher is not initialized: call `init` first")
            }
            Self::OutOfRange(error) => error.fmt(f),
            Self::OtherFlusher => f.write_str(
                "another flusher has CPUs of this platform online: a platform serves one flusher",
            ),
            Self::NotKernelRoot { loaded } => write!(
                f,
                "root {loaded:#x} is loaded, not the kernel's own: load it before `online`"
            ),
            Self::NoGlobalPages { cpu } => write!(
                f,
                "CPU {cpu} has CR4.PGE clear, but the kernel's mappings were declared global"
            ),
            Self::AlreadyOnline { cpu } => write!(f, "CPU {cpu} is online already"),
            Self::UnequalFeatures { cpu, has, expected } => write!(
                f,
                "CPU {cpu} has translation features {has:#x}, the first CPU had {expected:#x}: \
                 set the same control bits on all CPUs"
            ),
            Self::SharedTlb { cpu } => {
                write!(f, "CPU {cpu} has CnP set in TTBR1: clear it")
            }
            Self::WrongRegime { level } => write!(
                f,
                "EL{level} without E2H and TGE is not served: run at EL1, or at EL2 with both set"
            ),
        }
    }
}

impl core::error::Error for OnlineError {}

/// Why a space can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SpaceError {
    /// The root is not the address of a table: it has bits that are not address bits.
    BadRoot {
        /// What was given.
        root: u64,
    },
    /// All hardware tags are taken: retire a space first.
    TagsExhausted {
        /// How many there are.
        limit: u64,
    },
    /// The flusher's `init` was not called.
    NotInitialized,
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRoot { root } => write!(f, "{root:#x} is not the address of a root table"),
            Self::TagsExhausted { limit } => {
                write!(
                    f,
                    "all {limit} address-space tags are in use: retire a space first"
                )
            }
            Self::NotInitialized => {
                f.write_str("the flusher is not initialized: call `init` first")
            }
        }
    }
}

impl core::error::Error for SpaceError {}

/// Why a space can't retire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RetireError<const W: usize = 1> {
    /// These CPUs run the space. It stays as it was.
    Running(CpuSet<W>),
    /// It has retired before.
    AlreadyRetired,
}

impl<const W: usize> fmt::Display for RetireError<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(cpus) => write!(f, "the space is in use on CPUs {cpus:?}"),
            Self::AlreadyRetired => f.write_str("the space has retired already"),
        }
    }
}

impl<const W: usize> core::error::Error for RetireError<W> {}
