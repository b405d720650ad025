//! The operands of INVLPGB.
//!
//! ```text
//! rAX  63:12 address │ 5 nested │ 4 final translation only │ 3 global too │ 2 ASID valid │ 1 PCID valid │ 0 address valid
//! ECX  31 stride of 2 MiB │ 15:0 pages beyond the first
//! EDX  27:16 PCID │ 15:0 ASID
//! ```

use core::fmt;

const ADDRESS_VALID: u64 = 1 << 0;
const PCID_VALID: u64 = 1 << 1;
const ASID_VALID: u64 = 1 << 2;
const GLOBAL: u64 = 1 << 3;
const NESTED: u64 = 1 << 5;
const RAX_RESERVED: u64 = 0xfc0;
const STRIDE_2M: u32 = 1 << 31;
const ECX_RESERVED: u32 = 0x7fff_0000;
const EDX_RESERVED: u32 = 0xf000_0000;

/// The registers as the instruction finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operands {
    /// Address and flags.
    pub rax: u64,
    /// Count and stride.
    pub ecx: u32,
    /// PCID and ASID.
    pub edx: u32,
}

/// What the CPU that executes the instruction has; it decides what is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most pages beyond the first (CPUID 8000_0008 EDX 15:0).
    pub extra_pages: u16,
    /// Whether PCIDs are enabled (CR4.PCIDE).
    pub pcide: bool,
    /// Bits of a virtual address: 48, or 57 with five levels.
    pub address_bits: u32,
}

/// Why the hardware raises #GP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A reserved bit is set.
    ReservedBits,
    /// The count is larger than CPUID allows.
    TooManyPages,
    /// A PCID other than 0, without CR4.PCIDE.
    PcidDisabled,
    /// Nested translations, which CPUID does not offer.
    Nested,
    /// The range holds addresses that are not canonical.
    NotCanonical,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReservedBits => "a reserved bit is set",
            Self::TooManyPages => "the count exceeds what CPUID allows",
            Self::PcidDisabled => "a PCID is named while CR4.PCIDE is 0",
            Self::Nested => "nested translations are not offered",
            Self::NotCanonical => "the range is not canonical",
        })
    }
}

impl core::error::Error for Refused {}

/// Operands that the hardware accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request(Operands);

impl Request {
    /// Checks operands as the instruction does.
    ///
    /// # Errors
    /// [`Refused`] where it raises #GP.
    pub fn decode(operands: Operands, limits: Limits) -> Result<Self, Refused> {
        let Operands { rax, ecx, edx } = operands;
        if rax & RAX_RESERVED != 0 || ecx & ECX_RESERVED != 0 || edx & EDX_RESERVED != 0 {
            return Err(Refused::ReservedBits);
        }
        if rax & NESTED != 0 {
            return Err(Refused::Nested);
        }
        let request = Self(operands);
        if request.extra_pages() > u64::from(limits.extra_pages) {
            return Err(Refused::TooManyPages);
        }
        if request.pcid().is_some_and(|pcid| pcid != 0) && !limits.pcide {
            return Err(Refused::PcidDisabled);
        }
        if rax & ADDRESS_VALID != 0 && !request.is_canonical(limits.address_bits) {
            return Err(Refused::NotCanonical);
        }
        Ok(request)
    }

    /// The addresses, one a page; `None` where the request is not for addresses.
    #[must_use]
    pub fn pages(self) -> Option<impl Iterator<Item = u64>> {
        (self.0.rax & ADDRESS_VALID != 0).then(|| {
            let (start, stride) = (self.start(), self.stride());
            (0..=self.extra_pages()).map(move |page| start.wrapping_add(page * stride))
        })
    }

    /// The only PCID that is meant; `None` for all.
    #[must_use]
    pub const fn pcid(self) -> Option<u16> {
        if self.0.rax & PCID_VALID != 0 {
            Some((self.0.edx >> 16 & 0xfff) as u16)
        } else {
            None
        }
    }

    /// The only ASID that is meant; `None` for all. The host's is 0, others are guests'.
    #[must_use]
    pub const fn asid(self) -> Option<u16> {
        if self.0.rax & ASID_VALID != 0 {
            Some(self.0.edx as u16)
        } else {
            None
        }
    }

    /// Whether global translations are meant too.
    #[must_use]
    pub const fn global(self) -> bool {
        self.0.rax & GLOBAL != 0
    }

    /// The request in two words.
    #[must_use]
    pub const fn to_words(self) -> [u64; 2] {
        [self.0.rax, (self.0.edx as u64) << 32 | self.0.ecx as u64]
    }

    /// The request of [`to_words`](Self::to_words).
    #[must_use]
    pub(crate) const fn from_words([rax, rest]: [u64; 2]) -> Self {
        Self(Operands {
            rax,
            ecx: rest as u32,
            edx: (rest >> 32) as u32,
        })
    }

    const fn start(self) -> u64 {
        self.0.rax & !0xfff
    }

    const fn extra_pages(self) -> u64 {
        self.0.ecx as u64 & 0xffff
    }

    const fn stride(self) -> u64 {
        if self.0.ecx & STRIDE_2M != 0 {
            2 << 20
        } else {
            4096
        }
    }

    const fn is_canonical(self, bits: u32) -> bool {
        let last = self.start() as i128 + (self.extra_pages() * self.stride()) as i128;
        let half = 1_i128 << (bits - 1);
        let (start, top) = (self.start() as i128, 1_i128 << 64);
        last < half || (start >= top - half && last < top)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    const LIMITS: Limits = Limits {
        extra_pages: 7,
        pcide: true,
        address_bits: 48,
    };

    fn decode(rax: u64, ecx: u32, edx: u32) -> Result<Request, Refused> {
        Request::decode(Operands { rax, ecx, edx }, LIMITS)
    }

    fn pages(rax: u64, ecx: u32) -> Option<Vec<u64>> {
        decode(rax, ecx, 0).unwrap().pages().map(Iterator::collect)
    }

    #[test]
    fn the_count_is_of_pages_beyond_the_first() {
        assert_eq!(pages(0x5000 | 1, 0).unwrap(), [0x5000]);
        assert_eq!(pages(0x5000 | 1, 2).unwrap(), [0x5000, 0x6000, 0x7000]);
        assert_eq!(
            pages(0x20_0000 | 1, 1 << 31 | 1).unwrap(),
            [0x20_0000, 0x40_0000]
        );
        assert_eq!(pages(0x5000, 2), None);
        assert_eq!(pages(0x5000 | 1, 7).unwrap().len(), 8);
        assert_eq!(decode(0x5000 | 1, 8, 0), Err(Refused::TooManyPages));
    }

    #[test]
    fn fields_count_only_where_they_are_valid() {
        let named = decode(0b0110, 0, 0x0abc_0007).unwrap();
        assert_eq!((named.pcid(), named.asid()), (Some(0xabc), Some(7)));
        let open = decode(0, 0, 0x0abc_0007).unwrap();
        assert_eq!((open.pcid(), open.asid()), (None, None));
        assert!(!open.global() && decode(1 << 3, 0, 0).unwrap().global());
    }

    #[test]
    fn what_raises_an_exception() {
        for bit in 6..12 {
            assert_eq!(decode(1 << bit, 0, 0), Err(Refused::ReservedBits));
        }
        for bit in 16..31 {
            assert_eq!(decode(0, 1 << bit, 0), Err(Refused::ReservedBits));
        }
        for bit in 28..32 {
            assert_eq!(decode(0, 0, 1 << bit), Err(Refused::ReservedBits));
        }
        assert_eq!(decode(1 << 5, 0, 0), Err(Refused::Nested));
    }

    #[test]
    fn a_pcid_needs_pcids() {
        let without = Limits {
            pcide: false,
            ..LIMITS
        };
        let decode = |rax, edx| Request::decode(Operands { rax, ecx: 0, edx }, without);
        assert_eq!(decode(1 << 1, 1 << 16), Err(Refused::PcidDisabled));
        assert!(decode(1 << 1, 0).is_ok() && decode(0, 1 << 16).is_ok());
    }

    #[test]
    fn ranges_stay_on_one_side_of_the_hole() {
        for (rax, ecx, good) in [
            (0x0000_7fff_ffff_f001, 0, true),
            (0x0000_7fff_ffff_f001, 1, false),
            (0x0000_8000_0000_0001, 0, false),
            (0xffff_7fff_ffff_f001, 1, false),
            (0xffff_8000_0000_0001, 7, true),
            (0xffff_ffff_ffff_f001, 0, true),
            (0xffff_ffff_ffff_f001, 1, false),
            (0x0000_8000_0000_0000, 0, true),
        ] {
            assert_eq!(decode(rax, ecx, 0).is_ok(), good, "{rax:#x} and {ecx} more");
        }
    }

    #[test]
    fn words_hold_all() {
        let request = decode(0xffff_8000_1234_5000 | 0xf, 1 << 31 | 5, 0x0fed_0001).unwrap();
        assert_eq!(Request::from_words(request.to_words()), request);
    }
}
