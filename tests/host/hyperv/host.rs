//! The host: it decodes the operands of a flush hypercall as the TLFS lays them out, rejects what is malformed, logs what it
//! would drop, and nothing else.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use shootdown::x86_64::hyperv::{Hypercall, InputPage};

use crate::platform::log;

/// The guest-physical address of CPU 0's input page; those of the others follow.
pub const ADDRESS: u64 = 0x10_0000;

// HV_STATUS.
pub const INVALID_CODE: u16 = 2;
pub const INVALID_INPUT: u16 = 3;
pub const INVALID_ALIGNMENT: u16 = 4;
pub const INVALID_PARAMETER: u16 = 5;
pub const INVALID_VP_INDEX: u16 = 0xe;

/// How this thread's host behaves.
pub struct State {
    /// The input pages: one thread plays all CPUs of a machine, and each test is a thread.
    pages: &'static [InputPage; 4],
    /// The processors that there are.
    pub vps: Vec<u32>,
    /// It leaves a list unfinished after so many.
    pub entries_a_call: usize,
    /// It refuses every call so.
    pub refuse: Option<u16>,
    /// It refuses a list from this entry on.
    pub refuse_after: Option<usize>,
    /// The guest has no memory for input pages.
    pub no_page: bool,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State {
        pages: Box::leak(Box::new([const { InputPage::new() }; 4])),
        vps: Vec::new(),
        entries_a_call: usize::MAX,
        refuse: None,
        refuse_after: None,
        no_page: false,
    });
}

pub fn configure(change: impl FnOnce(&mut State)) {
    STATE.with_borrow_mut(change);
}

/// The input page of `cpu`.
pub fn input(cpu: usize) -> Option<(&'static InputPage, u64)> {
    STATE.with_borrow(|state| {
        let address = ADDRESS + 0x1000 * cpu as u64;
        (!state.no_page).then(|| (&state.pages[cpu], address))
    })
}

/// Writes operands by hand, from the beginning of CPU `cpu`'s page.
pub fn write(cpu: usize, words: &[u64]) {
    let (page, _) = input(cpu).unwrap();
    for (index, word) in words.iter().enumerate() {
        let at = core::ptr::from_ref(page).cast::<u64>().cast_mut();
        // SAFETY: the page consists of atomic words, and has so many.
        unsafe { AtomicU64::from_ptr(at.add(index)) }.store(*word, Relaxed);
    }
}

/// The host's side of the hypercalls.
pub struct Host;

// SAFETY: it has no translations to drop.
unsafe impl Hypercall for Host {
    unsafe fn call(control: u64, input: u64) -> u64 {
        match STATE.with_borrow(|state| call(state, control, input)) {
            Ok(reps) => (reps as u64) << 32,
            Err(status) => {
                log(format!("refused {status:#x}"));
                u64::from(status)
            }
        }
    }
}

fn bits(value: u64, low: u32, count: u32) -> u64 {
    value >> low & ((1 << count) - 1)
}

/// Gives how many entries are done.
fn call(state: &State, control: u64, input: u64) -> Result<usize, u16> {
    if let Some(status) = state.refuse {
        return Err(status);
    }
    let (name, is_list, is_ex) = match bits(control, 0, 16) {
        0x02 => ("space", false, false),
        0x03 => ("list", true, false),
        0x13 => ("space ex", false, true),
        0x14 => ("list ex", true, true),
        _ => return Err(INVALID_CODE),
    };
    let reserved = bits(control, 27, 4) | bits(control, 44, 4) | bits(control, 60, 4);
    let (fast, nested) = (bits(control, 16, 1), bits(control, 31, 1));
    let variable = bits(control, 17, 10) as usize;
    let reps = bits(control, 32, 12) as usize;
    let start = bits(control, 48, 12) as usize;
    let counts = if is_list {
        start < reps
    } else {
        reps == 0 && start == 0
    };
    if reserved != 0 || fast != 0 || nested != 0 || !counts || (!is_ex && variable != 0) {
        return Err(INVALID_INPUT);
    }
    let header = if is_ex { 4 + variable } else { 3 };
    if !input.is_multiple_of(8) || input % 0x1000 / 8 + (header + reps) as u64 > 512 {
        return Err(INVALID_ALIGNMENT);
    }
    let page = &state.pages[((input - ADDRESS) / 0x1000) as usize];
    let (root, flags) = (page.word(0), page.word(1));
    if flags & !7 != 0 || (is_list && flags & 4 != 0) {
        return Err(INVALID_PARAMETER);
    }
    let all_spaces = flags & 2 != 0;
    if !all_spaces && root & 0xfff != 0 {
        return Err(INVALID_PARAMETER);
    }
    let vps = if is_ex {
        set(page, variable)?
    } else {
        members(page.word(2), 0)
    };
    if vps.iter().any(|vp| !state.vps.contains(vp)) {
        return Err(INVALID_VP_INDEX);
    }
    let space = if all_spaces {
        "*".into()
    } else {
        format!("{root:#x}")
    };
    let globals = if flags & 4 != 0 {
        ", globals may stay"
    } else {
        ""
    };
    if !is_list {
        log(format!("{name} {space} on {vps:?}{globals}"));
        return Ok(0);
    }
    if state.refuse_after.is_some_and(|entry| start >= entry) {
        return Err(INVALID_PARAMETER);
    }
    let end = reps.min(start.saturating_add(state.entries_a_call));
    let entries: Vec<_> = (start..end)
        .map(|entry| page.word(header + entry))
        .map(|entry| format!("{:#x} + {}", entry & !0xfff, entry & 0xfff))
        .collect();
    log(format!("{name} {space} on {vps:?}: {}", entries.join(", ")));
    Ok(end)
}

/// The processors of a sparse set.
fn set(page: &InputPage, banks: usize) -> Result<Vec<u32>, u16> {
    let (format, mask) = (page.word(2), page.word(3));
    if format != 0 {
        return Err(INVALID_PARAMETER);
    }
    if mask.count_ones() as usize != banks {
        return Err(INVALID_INPUT);
    }
    let numbers = members(mask, 0);
    let banks = numbers.iter().zip(4..);
    Ok(banks
        .flat_map(|(number, word)| members(page.word(word), 64 * number))
        .collect())
}

fn members(word: u64, first: u32) -> Vec<u32> {
    (0..64)
        .filter(|bit| word >> bit & 1 != 0)
        .map(|bit| first + bit)
        .collect()
}
