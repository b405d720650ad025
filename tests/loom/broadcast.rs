//! INVLPGB and TLBSYNC in the models.
//!
//! An INVLPGB takes effect on all CPUs at once, either when it is issued or at the TLBSYNC: in between is no worse. It
//! carries no more of the initiator's stores to other CPUs than a fence before it has made visible.

use std::sync::atomic::Ordering::Relaxed;

use loom::sync::atomic::{
    Ordering::{Acquire, Relaxed as LoomRelaxed, SeqCst},
    fence,
};
use shootdown::x86_64::{Config, Features, Invlpgb, InvlpgbFlags};

use crate::{
    cpu::{GLOBAL_PCIDS, KERNEL_ROOT, pcid_index},
    machine::{Machine, machine},
    page::{PAGES, Page},
};

/// When a broadcast takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Effect {
    /// The model has none.
    None,
    /// When it is issued.
    Early,
    /// When it is waited for.
    Late,
}

/// The configuration of models that broadcast: with a second CPU a space becomes global.
pub fn config() -> Config {
    let features = Features {
        pcid: true,
        invpcid: true,
        invlpgb: Some(0),
        ..Features::default()
    };
    Config::new(features, KERNEL_ROOT)
        .kernel_mappings_global(true)
        .global_pcids(GLOBAL_PCIDS as u16)
        .broadcast_above(1)
}

pub fn invlpgb(operands: Invlpgb) {
    if machine().effect.load(Relaxed) == Effect::Early as u64 {
        apply(operands);
    } else {
        machine().me().issued.lock().unwrap().push(operands);
    }
}

pub fn tlbsync() {
    let issued = std::mem::take(&mut *machine().me().issued.lock().unwrap());
    issued.into_iter().for_each(apply);
}

/// A write of CR3 serializes. Only models that broadcast rely on it: a CPU that loads a global PCID drops nothing, so its
/// walks must come after its look at the tag.
pub fn serialize() {
    if machine().effect.load(Relaxed) != Effect::None as u64 {
        fence(SeqCst);
    }
}

/// Drops what the operands name, and nothing else, on all CPUs.
fn apply(operands: Invlpgb) {
    let flags = InvlpgbFlags::from_bits_truncate(operands.rax());
    let pcid = operands.edx() as usize >> 16;
    assert!(flags.contains(InvlpgbFlags::ASID) && operands.ecx() == 0);
    for cpu in machine().cpus() {
        // loom may let another CPU go on before this, but not between this and what follows.
        cpu.broadcasts.fetch_add(1, LoomRelaxed);
        for (index, entries) in cpu.tlb.iter().enumerate() {
            for page in [Page::X, Page::Y, Page::Z, Page::Kernel] {
                let by_address = !flags.contains(InvlpgbFlags::ADDRESS)
                    || Page::at(operands.rax() & !0xfff) == Some(page);
                let by_pcid = !flags.contains(InvlpgbFlags::PCID) || index == pcid_index(pcid);
                let by_kind = flags.contains(InvlpgbFlags::GLOBAL) || page != Page::Kernel;
                if by_address && by_pcid && by_kind {
                    entries[page as usize].store(0, Relaxed);
                }
            }
        }
    }
}

/// What a walk of the tables finds.
pub fn walk(machine: &Machine, entry: impl Fn() -> u64) -> u64 {
    const _: () = assert!(PAGES == 4);
    if machine.effect.load(Relaxed) == Effect::None as u64 {
        return entry();
    }
    let broadcasts = || machine.me().broadcasts.fetch_add(0, Acquire);
    let mut before = broadcasts();
    loop {
        let found = entry();
        let after = broadcasts();
        if before == after {
            return found;
        }
        before = after;
    }
}
