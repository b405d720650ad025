//! How virtual addresses are laid out: granules, leaf sizes, the two halves of the address space.

/// The translation granule: the size of the smallest page of a regime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Granule {
    /// 4 KiB pages.
    Size4K,
    /// 16 KiB pages (arm64).
    Size16K,
    /// 64 KiB pages (arm64).
    Size64K,
}

impl Granule {
    /// The size of a page in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Size4K => 1 << 12,
            Self::Size16K => 1 << 14,
            Self::Size64K => 1 << 16,
        }
    }
}

/// The smallest leaf size that any entry of a range had BEFORE the change.
///
/// A range of which one entry was a 4 KiB page and another a 2 MiB page has stride 4 KiB. Splitting a large page
/// flushes the large page (stride 2 MiB); collapsing pages into a large one frees a table and has the small stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Stride {
    /// 4 KiB.
    Size4K = 12,
    /// 16 KiB (16 KiB granule).
    Size16K = 14,
    /// 64 KiB (64 KiB granule).
    Size64K = 16,
    /// 2 MiB (4 KiB granule).
    Size2M = 21,
    /// 32 MiB (16 KiB granule).
    Size32M = 25,
    /// 512 MiB (64 KiB granule).
    Size512M = 29,
    /// 1 GiB (4 KiB granule).
    Size1G = 30,
}

impl Stride {
    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self as u8
    }

    pub(crate) const fn fits(self, granule: Granule) -> bool {
        matches!(
            (granule, self),
            (
                Granule::Size4K,
                Stride::Size4K | Stride::Size2M | Stride::Size1G
            ) | (Granule::Size16K, Stride::Size16K | Stride::Size32M)
                | (Granule::Size64K, Stride::Size64K | Stride::Size512M)
        )
    }
}

/// How a regime lays out its virtual addresses: the granule, and how many low and high addresses there are.
///
/// Addresses below `2^bits` belong to the low half and those from `2^64 - 2^bits` to the high half; what lies
/// between is the hole, which no range may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Paging {
    half_bits: u8,
    granule: Granule,
}

impl Paging {
    /// x86_64 with four levels: 48-bit canonical addresses, 47 bits a half.
    pub const X86_4_LEVEL: Self = Self {
        half_bits: 47,
        granule: Granule::Size4K,
    };

    /// x86_64 with five levels (CR4.LA57): 57-bit canonical addresses, 56 bits a half.
    pub const X86_5_LEVEL: Self = Self {
        half_bits: 56,
        granule: Granule::Size4K,
    };

    /// arm64 with 48-bit addresses in each of TTBR0 and TTBR1.
    pub const fn arm64(granule: Granule) -> Self {
        Self {
            half_bits: 48,
            granule,
        }
    }

    /// arm64 with 52-bit addresses (FEAT_LVA, FEAT_LPA2) in each of TTBR0 and TTBR1.
    pub const fn arm64_52(granule: Granule) -> Self {
        Self {
            half_bits: 52,
            granule,
        }
    }

    /// The granule.
    pub const fn granule(self) -> Granule {
        self.granule
    }

    /// Whether `addr` is in the high half, where kernels live.
    pub const fn is_high(self, addr: u64) -> bool {
        addr >= self.high_start()
    }

    /// Whether `addr` is in one of the halves and not in the hole.
    pub const fn contains(self, addr: u64) -> bool {
        addr < 1 << self.half_bits || addr >= self.high_start()
    }

    const fn high_start(self) -> u64 {
        u64::MAX << self.half_bits
    }
}
