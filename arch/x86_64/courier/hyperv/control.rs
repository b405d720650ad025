//! The control word and the result word of a hypercall (TLFS, "Hypercall Interface").

/// The flush hypercalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u16)]
pub enum FlushCode {
    /// HvCallFlushVirtualAddressSpace: everything, processors by mask.
    Space = 0x0002,
    /// HvCallFlushVirtualAddressList: a list, processors by mask.
    List = 0x0003,
    /// HvCallFlushVirtualAddressSpaceEx: everything, processors by set.
    SpaceEx = 0x0013,
    /// HvCallFlushVirtualAddressListEx: a list, processors by set.
    ListEx = 0x0014,
}

bitflags::bitflags! {
    /// The flags of a flush hypercall (HV_FLUSH_FLAGS).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FlushFlags: u64 {
        /// On all processors; the mask or set is ignored.
        const ALL_PROCESSORS = 1 << 0;
        /// Of all address spaces; the address space is ignored.
        const ALL_VIRTUAL_ADDRESS_SPACES = 1 << 1;
        /// Global entries may stay. Invalid for lists.
        const NON_GLOBAL_MAPPINGS_ONLY = 1 << 2;
    }
}

/// A hypercall's control word.
///
/// ```text
/// 63   60 59       48 47   44 43       32 31 30    27 26          17 16   15     0
/// │ zero │ first rep │ zero  │ reps      │ │ zero    │ variable words │fast│ code │
/// ```
///
/// ```
/// use shootdown::x86_64::hyperv::{Control, FlushCode};
///
/// // A list of 5 entries after a set of 2 banks: its mask of banks is in the fixed part.
/// let control = Control::new(FlushCode::ListEx).variable_words(2).reps(5);
/// assert_eq!(control.0, 5 << 32 | 2 << 17 | 0x14);
/// assert_eq!(control.from_rep(3).0, 3 << 48 | 5 << 32 | 2 << 17 | 0x14);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Control(pub u64);

/// A rep count or rep start has 12 bits, a count of variable words 10.
const REP_MASK: u64 = 0xfff;
const VARIABLE_MASK: u64 = 0x3ff;
const VARIABLE_SHIFT: u32 = 17;
const REPS_SHIFT: u32 = 32;
const START_SHIFT: u32 = 48;

impl Control {
    /// A call without list and variable part.
    pub const fn new(code: FlushCode) -> Self {
        Self(code as u64)
    }

    /// The input's fixed part is followed by so many words before the list.
    ///
    /// # Panics
    ///
    /// If they are more than 1023.
    pub const fn variable_words(self, words: usize) -> Self {
        let words = words as u64;
        assert!(
            words <= VARIABLE_MASK,
            "a variable header has at most 1023 words"
        );
        Self(self.0 & !(VARIABLE_MASK << VARIABLE_SHIFT) | words << VARIABLE_SHIFT)
    }

    /// The input ends with a list of so many entries.
    ///
    /// # Panics
    ///
    /// If they are more than 4095.
    pub const fn reps(self, reps: usize) -> Self {
        let reps = reps as u64;
        assert!(reps <= REP_MASK, "a list has at most 4095 entries");
        Self(self.0 & !(REP_MASK << REPS_SHIFT) | reps << REPS_SHIFT)
    }

    /// The same call from entry `rep` of its list on.
    ///
    /// # Panics
    ///
    /// If it is more than 4095.
    #[must_use]
    pub const fn from_rep(self, rep: usize) -> Self {
        let rep = rep as u64;
        assert!(rep <= REP_MASK, "a list has at most 4095 entries");
        Self(self.0 & !(REP_MASK << START_SHIFT) | rep << START_SHIFT)
    }

    /// The entries of the list.
    pub const fn rep_count(self) -> usize {
        (self.0 >> REPS_SHIFT & REP_MASK) as usize
    }
}

/// A hypercall's result word: the status in bits 15:0, the entries done so far, from the list's begin, in bits 43:32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Outcome(pub u64);

impl Outcome {
    /// The status; 0 is success.
    pub const fn status(self) -> u16 {
        self.0 as u16
    }

    /// The entries of the list that are done.
    pub const fn reps_done(self) -> usize {
        (self.0 >> REPS_SHIFT & REP_MASK) as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        assert_eq!(Control::new(FlushCode::Space).0, 0x2);
        assert_eq!(Control::new(FlushCode::List).reps(1).0, 0x1_0000_0003);
        assert_eq!(
            Control::new(FlushCode::SpaceEx).variable_words(64).0,
            0x80_0013
        );
        let list = Control::new(FlushCode::ListEx).variable_words(1).reps(4095);
        assert_eq!(list.0, 0xfff_0002_0014);
        assert_eq!(list.from_rep(4094).0, 0x0ffe_0fff_0002_0014);
        assert_eq!(list.from_rep(4094).from_rep(1), list.from_rep(1));
        assert_eq!(list.rep_count(), 4095);
    }

    #[test]
    fn outcomes() {
        let outcome = Outcome(0x0fff_0000_0000 | 0xb);
        assert_eq!((outcome.status(), outcome.reps_done()), (0xb, 0xfff));
        // Reserved bits do not count.
        assert_eq!(Outcome(0xffff_f000_ffff_0000).status(), 0);
        assert_eq!(Outcome(0xffff_f000_ffff_0000).reps_done(), 0);
    }

    #[test]
    #[should_panic(expected = "at most 4095 entries")]
    fn a_list_too_long() {
        let _ = Control::new(FlushCode::List).reps(4096);
    }
}
