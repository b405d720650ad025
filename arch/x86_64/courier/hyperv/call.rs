//! From an errand to a hypercall: who is named, which call it is, and making it.
//!
//! ```text
//! word 0   address space: a root address without PCID bits
//! word 1   flags
//! word 2   mask of processors, or their set: format, mask of banks, banks
//! then     the list, for the calls that have one
//! ```

use super::{
    Control, FlushCode, FlushFlags, HyperVPlatform, Hypercall, InputPage, Outcome, vp_set,
};
use crate::{
    coverage::{Branch, took},
    cpus::CpuSet,
    variant::{Broken, broken},
    x86_64::{Errand, ErrandScope},
};

const ADDRESS_SPACE: usize = 0;
const FLAGS: usize = 1;
const PROCESSORS: usize = 2;

/// HV_STATUS_TIMEOUT: also what is noted where the host says success and leaves the list as it was.
const TIMEOUT: u16 = 0x78;

/// The processors of a call, as they stand in the input page.
#[derive(Debug)]
pub(super) struct Named<const W: usize> {
    /// The CPUs that are named.
    pub(super) cpus: CpuSet<W>,
    /// What they take in the page.
    pub(super) words: Processors,
}

/// How processors are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processors {
    /// By a mask of 64.
    Mask,
    /// By a set of so many banks.
    Set(usize),
}

/// A call whose input is in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prepared {
    pub(super) control: Control,
}

/// Names the targets in `page`; those that can't be named are left out. `None` if that leaves nobody. `sets`: whether the
/// host takes sets.
pub(super) fn name<H: HyperVPlatform, const W: usize>(
    page: &InputPage,
    targets: &CpuSet<W>,
    sets: bool,
) -> Option<Named<W>> {
    let limit = if sets { vp_set::MAX_VP } else { 64 };
    let mut cpus = CpuSet::EMPTY;
    let mut mask = 0;
    let mut wide = false;
    for cpu in targets.iter() {
        let narrowed = broken(Broken::HypervNonExWide);
        match H::vp_index(cpu) {
            Some(vp) if vp < limit || narrowed => {
                cpus.add(cpu);
                mask |= 1 << (vp % 64);
                wide |= vp >= 64 && !narrowed;
            }
            // It is interrupted.
            _ => took(Branch::HypervUnnamed),
        }
    }
    if cpus.is_empty() {
        return None;
    }
    let words = if wide {
        let vps = cpus.iter().filter_map(H::vp_index);
        Processors::Set(vp_set::write(page, PROCESSORS, vps))
    } else {
        page.set(PROCESSORS, mask);
        Processors::Mask
    };
    Some(Named { cpus, words })
}

/// Chooses the call for `errand` and writes the rest of its input.
pub(super) fn describe(page: &InputPage, errand: &Errand, processors: Processors) -> Prepared {
    let (root, mut flags) = match errand.scope() {
        ErrandScope::Space { root } => (root, FlushFlags::empty()),
        ErrandScope::Spaces | ErrandScope::Kernel => (0, FlushFlags::ALL_VIRTUAL_ADDRESS_SPACES),
    };
    let (header, variable) = match processors {
        Processors::Mask => (PROCESSORS + 1, 0),
        Processors::Set(banks) => (PROCESSORS + vp_set::HEADER + banks, banks),
    };
    let room = InputPage::room(header) + usize::from(broken(Broken::HypervListLong));
    // A list is of addresses; what a table that is gone led to is not said to be dropped with them.
    let range = errand
        .range()
        .filter(|_| !errand.flags().contains(crate::ChangeFlags::TABLES_FREED));
    let list = range.and_then(|range| page.list(header, range, room));
    if list.is_none() && errand.scope() != ErrandScope::Kernel {
        flags |= FlushFlags::NON_GLOBAL_MAPPINGS_ONLY;
    }
    page.set(ADDRESS_SPACE, root);
    page.set(FLAGS, flags.bits());
    let (branch, code) = match (list, processors) {
        (None, Processors::Mask) => (Branch::HypervSpace, FlushCode::Space),
        (Some(_), Processors::Mask) => (Branch::HypervList, FlushCode::List),
        (None, Processors::Set(_)) => (Branch::HypervSpaceEx, FlushCode::SpaceEx),
        (Some(_), Processors::Set(_)) => (Branch::HypervListEx, FlushCode::ListEx),
    };
    took(branch);
    Prepared {
        control: Control::new(code)
            .variable_words(variable)
            .reps(list.unwrap_or(0)),
    }
}

/// Makes the call, as often as the host needs to get through the list.
///
/// # Errors
///
/// The status with which the host refuses.
pub(super) fn make<C: Hypercall>(prepared: &Prepared, input: u64) -> Result<(), u16> {
    let reps = prepared.control.rep_count();
    let mut done = 0;
    loop {
        // SAFETY: the input is that of a flush, which affects translations only.
        let outcome = Outcome(unsafe { C::call(prepared.control.from_rep(done).0, input) });
        if outcome.status() != 0 {
            return Err(outcome.status());
        }
        let now = outcome.reps_done();
        if now >= reps || broken(Broken::HypervRepsNotResumed) {
            return Ok(());
        }
        if now <= done {
            return Err(TIMEOUT);
        }
        took(Branch::HypervResumed);
        done = now;
    }
}
