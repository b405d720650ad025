//! Hyper-V's flush hypercalls.
//!
//! ```text
//! control   15:0 code │ 16 fast │ 26:17 variable words │ 31 nested │ 43:32 reps │ 59:48 first rep
//! input     0 address space │ 1 flags │ 2 mask, or set: format, mask of banks, banks │ list
//! result    15:0 status │ 43:32 reps done
//! ```

use crate::processors::Processors;

/// The status in a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// It was done.
    Success = 0,
    /// There is no such call.
    InvalidCode = 2,
    /// The control word does not suit the call.
    InvalidInput = 3,
    /// The input is not aligned, or crosses a page.
    InvalidAlignment = 4,
    /// An operand in the input is wrong.
    InvalidParameter = 5,
    /// The hypervisor lacks memory.
    InsufficientMemory = 11,
}

impl Status {
    /// A result word with this status and so many reps done.
    #[must_use]
    pub const fn result(self, reps_done: usize) -> u64 {
        (reps_done as u64) << 32 | self as u64
    }
}

const SPACE: u64 = 0x0002;
const LIST: u64 = 0x0003;
const SPACE_EX: u64 = 0x0013;
const LIST_EX: u64 = 0x0014;

const ALL_PROCESSORS: u64 = 1 << 0;
const ALL_SPACES: u64 = 1 << 1;
const NON_GLOBAL_ONLY: u64 = 1 << 2;

const FAST: u64 = 1 << 16;
const NESTED: u64 = 1 << 31;
const RESERVED: u64 = 0xf << 27 | 0xf << 44 | 0xf << 60;

const SPARSE: u64 = 0;
const EVERYONE: u64 = 1;
/// The physical address bits of a root; a PCID is none of an address space's name.
const ROOT: u64 = 0x000f_ffff_ffff_f000;
const WORDS_OF_PAGE: usize = 512;

/// A flush that the hypervisor accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The root of the address space; `None` for all.
    pub space: Option<u64>,
    /// Whose translations.
    pub processors: Processors,
    /// Whether global translations may stay. Never for a list.
    pub non_global_only: bool,
    /// The list; `None` for everything.
    pub list: Option<List>,
}

/// The entries of a list that are still to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// The first of them, counted in words from the begin of the input.
    pub word: usize,
    /// The number of the first of them in the list.
    pub first: usize,
    /// One past the number of the last.
    pub end: usize,
}

impl Flush {
    /// Reads a flush as the hypervisor does: `control` from RCX, `input` the address from RDX, `read` gives the word
    /// at an index from there.
    ///
    /// # Errors
    /// The status with which the hypervisor refuses.
    pub fn decode(control: u64, input: u64, read: impl Fn(usize) -> u64) -> Result<Self, Status> {
        let code = control & 0xffff;
        let variable = (control >> 17 & 0x3ff) as usize;
        let reps = (control >> 32 & 0xfff) as usize;
        let first = (control >> 48 & 0xfff) as usize;
        let (is_list, is_ex) = match code {
            SPACE => (false, false),
            LIST => (true, false),
            SPACE_EX => (false, true),
            LIST_EX => (true, true),
            _ => return Err(Status::InvalidCode),
        };
        // Operands in registers would fit for none of these but a plain SPACE, which nobody needs.
        let reps_fit = if is_list {
            reps > 0 && first < reps
        } else {
            reps == 0 && first == 0
        };
        if control & (FAST | NESTED | RESERVED) != 0 || !reps_fit || (!is_ex && variable != 0) {
            return Err(Status::InvalidInput);
        }
        let header = if is_ex { 4 } else { 3 } + variable;
        let offset = (input % 4096 / 8) as usize;
        if !input.is_multiple_of(8) || offset + header + reps > WORDS_OF_PAGE {
            return Err(Status::InvalidAlignment);
        }
        let (space, flags) = (read(0), read(1));
        let known = ALL_PROCESSORS | ALL_SPACES | NON_GLOBAL_ONLY;
        if flags & !known != 0 || (is_list && flags & NON_GLOBAL_ONLY != 0) {
            return Err(Status::InvalidParameter);
        }
        if flags & ALL_SPACES == 0 && space & !ROOT != 0 {
            return Err(Status::InvalidParameter);
        }
        let named = if is_ex {
            set(read(2), read(3), variable, |bank| read(4 + bank))?
        } else {
            Processors::of_mask(read(2))
        };
        Ok(Self {
            space: (flags & ALL_SPACES == 0).then_some(space),
            processors: if flags & ALL_PROCESSORS != 0 {
                Processors::ALL
            } else {
                named
            },
            non_global_only: flags & NON_GLOBAL_ONLY != 0,
            list: is_list.then_some(List {
                word: header + first,
                first,
                end: reps,
            }),
        })
    }
}

/// A set of processors: a word for each bank in the mask, in ascending order.
fn set(
    format: u64,
    mask: u64,
    words: usize,
    read: impl Fn(usize) -> u64,
) -> Result<Processors, Status> {
    match format {
        EVERYONE => Ok(Processors::ALL),
        SPARSE if mask.count_ones() as usize != words => Err(Status::InvalidInput),
        SPARSE => {
            let (mut banks, mut word) = ([0; 64], 0);
            for (bank, value) in banks.iter_mut().enumerate() {
                if mask & 1 << bank != 0 {
                    *value = read(word);
                    word += 1;
                }
            }
            Ok(Processors(banks))
        }
        _ => Err(Status::InvalidParameter),
    }
}

/// The pages that an entry of a list names: a page's address, and how many further pages follow.
pub fn pages(entry: u64) -> impl Iterator<Item = u64> {
    (0..=entry & 0xfff).map(move |page| (entry & !0xfff).wrapping_add(page * 4096))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{vec, vec::Vec};

    use super::*;

    const AT: u64 = 0x7000;

    fn decode(control: u64, words: &[u64]) -> Result<Flush, Status> {
        Flush::decode(control, AT, |index| words.get(index).copied().unwrap_or(0))
    }

    fn list(code: u64, reps: u64, words: &[u64]) -> Result<Flush, Status> {
        decode(reps << 32 | code, words)
    }

    #[test]
    fn a_space_by_mask() {
        let flush = decode(SPACE, &[0xa000, NON_GLOBAL_ONLY, 0b110]).unwrap();
        assert_eq!(flush.space, Some(0xa000));
        assert!(flush.non_global_only && flush.list.is_none());
        assert_eq!(flush.processors, Processors::of_mask(0b110));
        let all = decode(SPACE, &[0xa123, ALL_SPACES | ALL_PROCESSORS, 0]).unwrap();
        assert_eq!((all.space, all.processors), (None, Processors::ALL));
    }

    #[test]
    fn a_list_by_mask() {
        let flush = list(LIST, 2, &[0xa000, 0, 1, 0x5001, 0x9000]).unwrap();
        let expected = List {
            word: 3,
            first: 0,
            end: 2,
        };
        assert_eq!(flush.list, Some(expected));
        let rest = decode(1 << 48 | 2 << 32 | LIST, &[0xa000, 0, 1]).unwrap();
        assert_eq!(rest.list.map(|list| (list.word, list.first)), Some((4, 1)));
    }

    #[test]
    fn a_set_has_a_word_a_bank() {
        // Banks 1 and 3: processors 64 + 5 and 192.
        let words = [0xa000, 0, SPARSE, 0b1010, 1 << 5, 1, 0x5000];
        let flush = list(LIST_EX | 2 << 17, 1, &words).unwrap();
        assert_eq!(flush.list.map(|list| list.word), Some(6));
        let named: Vec<_> = (0..4096)
            .filter(|vp| flush.processors.contains(*vp))
            .collect();
        assert_eq!(named, [69, 192]);
        let everyone = decode(SPACE_EX, &[0xa000, 0, EVERYONE, 0]).unwrap();
        assert_eq!(everyone.processors, Processors::ALL);
    }

    #[test]
    fn what_is_refused() {
        let good = [0xa000, 0, 1, 0x5000];
        for (control, words, status) in [
            (0x3fff, good, Status::InvalidCode),
            (LIST, good, Status::InvalidInput),
            (1 << 32 | SPACE, good, Status::InvalidInput),
            (1 << 48 | SPACE, good, Status::InvalidInput),
            (1 << 48 | 1 << 32 | LIST, good, Status::InvalidInput),
            (1 << 17 | SPACE, good, Status::InvalidInput),
            (FAST | SPACE, good, Status::InvalidInput),
            (NESTED | SPACE, good, Status::InvalidInput),
            (1 << 27 | SPACE, good, Status::InvalidInput),
            (1 << 44 | SPACE, good, Status::InvalidInput),
            (1 << 60 | SPACE, good, Status::InvalidInput),
            (SPACE, [0xa000, 1 << 3, 1, 0], Status::InvalidParameter),
            (SPACE, [0xa001, 0, 1, 0], Status::InvalidParameter),
            (SPACE_EX, [0xa000, 0, 2, 0], Status::InvalidParameter),
            (SPACE_EX, [0xa000, 0, SPARSE, 1], Status::InvalidInput),
            (
                1 << 17 | SPACE_EX,
                [0xa000, 0, 0, 0b11],
                Status::InvalidInput,
            ),
        ] {
            assert_eq!(decode(control, &words), Err(status), "{control:#x}");
        }
        let non_global = [0xa000, NON_GLOBAL_ONLY, 1, 0x5000];
        assert_eq!(list(LIST, 1, &non_global), Err(Status::InvalidParameter));
    }

    #[test]
    fn the_input_stays_in_its_page() {
        let words = vec![0; 600];
        assert!(list(LIST, 509, &words).is_ok());
        assert_eq!(list(LIST, 510, &words), Err(Status::InvalidAlignment));
        let at = |input| Flush::decode(SPACE, input, |_| 0).err();
        assert_eq!(at(0x7004), Some(Status::InvalidAlignment));
        assert_eq!(at(0x7000 + 8 * 509), None);
        assert_eq!(at(0x7000 + 8 * 510), Some(Status::InvalidAlignment));
    }

    #[test]
    fn an_entry_names_further_pages() {
        assert_eq!(pages(0x5002).collect::<Vec<_>>(), [0x5000, 0x6000, 0x7000]);
        assert_eq!(pages(0x5fff).count(), 4096);
    }
}
