//! What a Hyper-V flush hypercall asks for, or why it is rejected (Hypervisor Top-Level Functional Specification,
//! "Hypercall Interface" and "Virtual Processor TLB").

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Why a hypercall fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Status {
    /// HV_STATUS_INVALID_HYPERCALL_CODE
    InvalidCode = 0x0002,
    /// HV_STATUS_INVALID_HYPERCALL_INPUT
    InvalidInput = 0x0003,
    /// HV_STATUS_INVALID_ALIGNMENT: also of input that spans pages.
    InvalidAlignment = 0x0004,
    /// HV_STATUS_INVALID_PARAMETER
    InvalidParameter = 0x0005,
    /// HV_STATUS_INSUFFICIENT_MEMORY
    InsufficientMemory = 0x000b,
}

/// The virtual processors that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Processors {
    All,
    /// By their indices.
    These(Vec<u32>),
}

/// What a hypercall asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flush {
    /// The root of the address space; `None` is all.
    pub space: Option<u64>,
    /// Global translations may stay.
    pub keeps_globals: bool,
    pub processors: Processors,
    /// The first and the last address of each rep; `None` is the whole space.
    pub list: Option<Vec<(u64, u64)>>,
    /// The first rep that is yet to be done.
    pub start: usize,
}

/// A hypercall's control word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Control(u64);

impl Control {
    const fn field(self, low: u32, bits: u32) -> u64 {
        self.0 >> low & ((1 << bits) - 1)
    }

    /// Bits 30:27, 47:44 and 63:60 are reserved. A guest that is no hypervisor itself sets bit 31, "nested", in vain.
    const fn is_well_formed(self) -> bool {
        self.field(27, 5) == 0 && self.field(44, 4) == 0 && self.field(60, 4) == 0
    }
}

/// Decodes a hypercall whose input is at the physical address `input`; `read` gives the words of that page. `banks` says
/// whether the forms with processor sets are offered.
///
/// # Errors
///
/// The status that it is rejected with.
pub(crate) fn decode(
    control: u64,
    input: u64,
    read: impl Fn(usize) -> u64,
    banks: bool,
) -> Result<Flush, Status> {
    let control = Control(control);
    let (is_list, is_extended) = match control.field(0, 16) {
        0x0002 => (false, false),
        0x0003 => (true, false),
        0x0013 if banks => (false, true),
        0x0014 if banks => (true, true),
        _ => return Err(Status::InvalidCode),
    };
    let variable = control.field(17, 10);
    let (count, start) = (control.field(32, 12), control.field(48, 12));
    // The fast form passes two registers, which is less than the shortest of these inputs; more is not offered.
    let is_fast = control.field(16, 1) != 0;
    let reps_fit = if is_list {
        start < count
    } else {
        count == 0 && start == 0
    };
    if !control.is_well_formed() || is_fast || !reps_fit || (variable != 0 && !is_extended) {
        return Err(Status::InvalidInput);
    }
    let header = if is_extended { 4 + variable } else { 3 };
    if input & 7 != 0 || (input & (PAGE - 1)) + 8 * (header + count) > PAGE {
        return Err(Status::InvalidAlignment);
    }
    let first = ((input & (PAGE - 1)) / 8) as usize;
    let word = |index: u64| read(first + index as usize);
    let flags = word(1);
    // Bit 2, non-global only, is not for lists; bit 3, the extended range format, is not offered.
    if flags & !0b111 != 0 || (is_list && flags & 0b100 != 0) {
        return Err(Status::InvalidParameter);
    }
    let named = if is_extended {
        set(word(2), word(3), variable, |bank| word(4 + bank))?
    } else {
        let mask = word(2);
        Processors::These((0..64).filter(|bit| mask >> bit & 1 != 0).collect())
    };
    let list = is_list.then(|| (0..count).map(|rep| range(word(header + rep))).collect());
    Ok(Flush {
        space: (flags & 0b10 == 0).then(|| word(0)),
        keeps_globals: flags & 0b100 != 0,
        processors: if flags & 1 != 0 {
            Processors::All
        } else {
            named
        },
        list,
        start: start as usize,
    })
}

/// The set of virtual processors in banks of 64.
fn set(
    format: u64,
    valid: u64,
    variable: u64,
    bank: impl Fn(u64) -> u64,
) -> Result<Processors, Status> {
    if variable != u64::from(valid.count_ones()) {
        return Err(Status::InvalidInput);
    }
    match format {
        0 => {}
        1 => return Ok(Processors::All),
        _ => return Err(Status::InvalidParameter),
    }
    let numbers = (0..64u32).filter(|number| valid >> number & 1 != 0);
    let named = numbers.zip(0..).flat_map(|(number, place)| {
        let mask = bank(place);
        (0..64)
            .filter(move |bit| mask >> bit & 1 != 0)
            .map(move |bit| 64 * number + bit)
    });
    Ok(Processors::These(named.collect()))
}

/// The first and the last address of a list's entry: a page, and in the low bits how many more follow.
fn range(entry: u64) -> (u64, u64) {
    let first = entry & !(PAGE - 1);
    let more = (entry & (PAGE - 1)) * PAGE;
    (first, first.saturating_add(more + (PAGE - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: u64 = 0x7000;

    fn call(control: u64, words: &[u64]) -> Result<Flush, Status> {
        decode(
            control,
            INPUT,
            |index| words.get(index).copied().unwrap_or(0),
            true,
        )
    }

    #[test]
    fn a_space_on_some() {
        let flush = call(0x0002, &[0x5000, 0, 0b101]).unwrap();
        assert_eq!(flush.space, Some(0x5000));
        assert_eq!(flush.processors, Processors::These(vec![0, 2]));
        assert_eq!((flush.list, flush.keeps_globals), (None, false));
        let flush = call(0x0002, &[0x5000, 0b111, 0]).unwrap();
        assert_eq!((flush.space, flush.processors), (None, Processors::All));
        assert!(flush.keeps_globals);
    }

    #[test]
    fn a_list_goes_on_where_it_stopped() {
        let list = [0, 0, 1, 0x4000, 0x8002, 0xffff_ffff_ffff_ffff];
        let flush = call(0x0003 | 3 << 32 | 1 << 48, &list).unwrap();
        assert_eq!(flush.start, 1);
        let ranges = [
            (0x4000, 0x4fff),
            (0x8000, 0xafff),
            (0xffff_ffff_ffff_f000, u64::MAX),
        ];
        assert_eq!(flush.list, Some(ranges.to_vec()));
    }

    #[test]
    fn banks_name_processors() {
        let words = [0x5000, 0, 0, 0b101, 1 << 63, 0b10, 0x4001];
        let flush = call(0x0014 | 2 << 17 | 1 << 32, &words).unwrap();
        assert_eq!(flush.processors, Processors::These(vec![63, 129]));
        assert_eq!(flush.list, Some(vec![(0x4000, 0x5fff)]));
        let flush = call(0x0013, &[0x5000, 0, 1, 0]).unwrap();
        assert_eq!(flush.processors, Processors::All);
    }

    #[test]
    fn what_is_wrong_is_rejected() {
        use Status::*;
        let bad = [
            (0x0001, InvalidCode),
            (0x0002 | 1 << 16, InvalidInput),
            (0x0002 | 1 << 17, InvalidInput),
            (0x0002 | 1 << 27, InvalidInput),
            (0x0002 | 1 << 31, InvalidInput),
            (0x0002 | 1 << 32, InvalidInput),
            (0x0002 | 1 << 44, InvalidInput),
            (0x0002 | 1 << 48, InvalidInput),
            (0x0002 | 1 << 60, InvalidInput),
            (0x0003, InvalidInput),
            (0x0003 | 1 << 32 | 1 << 48, InvalidInput),
            (0x0003 | 1 << 17 | 1 << 32, InvalidInput),
            // 3 words and 509 entries fill the page.
            (0x0003 | 510 << 32, InvalidAlignment),
            (0x0014 | 508 << 17 | 1 << 32, InvalidAlignment),
            (0x0013 | 1 << 17, InvalidInput),
        ];
        for (control, status) in bad {
            assert_eq!(call(control, &[0x5000]), Err(status), "{control:#x}");
        }
        assert!(call(0x0003 | 509 << 32, &[0x5000]).is_ok());
        assert_eq!(call(0x0002, &[0, 0b1000]), Err(InvalidParameter));
        assert_eq!(call(0x0003 | 1 << 32, &[0, 0b100]), Err(InvalidParameter));
        assert_eq!(call(0x0013, &[0, 0, 2]), Err(InvalidParameter));
        assert_eq!(decode(0x0002, 0x7004, |_| 0, true), Err(InvalidAlignment));
        assert_eq!(decode(0x0002, 0x7ff0, |_| 0, true), Err(InvalidAlignment));
        assert_eq!(decode(0x0013, 0x7000, |_| 0, false), Err(InvalidCode));
    }
}
