//! Litmus tests of the engine and of the machine's instructions.

mod invlpgb;

use core::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::panic::Location;
use std::rc::Rc;

use shootdown::{
    atomic::Hook,
    x86_64::{Instructions, InvpcidKind},
};

use super::{
    Machine, Mode,
    current::{Calls, with},
    hook::Hooked,
    layout, physical,
    physical::{GLOBAL, LEAF},
    scheduler::{relax, run},
    tlb::Kind,
    x86::{CR4_PCIDE, CR4_PGE, X86},
};
use crate::chooser::Chooser;

const PCID: Mode = Mode::X86 {
    pcid: true,
    invpcid: true,
    invlpgb: true,
    tce: false,
};

fn calls() -> Calls {
    Calls {
        interrupt: Rc::new(|| ()),
        user_access_ok: Rc::new(|| false),
    }
}

#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

fn store(line: &Line, value: u64) {
    Hooked.store(&line.0, value, Ordering::Relaxed, Location::caller());
}

fn load(line: &Line) -> u64 {
    Hooked.load(&line.0, Ordering::Relaxed, Location::caller())
}

/// Two CPUs that each store to one word and then load the other; gives what they saw, and the failure.
fn store_buffering(seed: u64, fence: bool) -> (u64, u64) {
    let lines: Rc<[Line; 2]> = Rc::default();
    let seen: Rc<[Cell<u64>; 2]> = Rc::default();
    let mut machine = Machine::new(PCID, &[0, 1], Chooser::random(seed, None), false);
    machine.lines.register(&*lines);
    let bodies = (0..2)
        .map(|cpu| {
            let (lines, seen) = (Rc::clone(&lines), Rc::clone(&seen));
            Box::new(move || {
                store(&lines[cpu], 1);
                if fence {
                    Hooked.fence(Ordering::SeqCst, Location::caller());
                }
                seen[cpu].set(load(&lines[1 - cpu]));
            }) as Box<dyn FnOnce()>
        })
        .collect();
    let machine = run(machine, calls(), bodies);
    assert_eq!(machine.failure, None);
    (seen[0].get(), seen[1].get())
}

#[test]
fn stores_are_buffered_until_a_fence() {
    let both_old = |fence: bool| {
        (0..400)
            .filter(|seed| store_buffering(*seed, fence) == (0, 0))
            .count()
    };
    assert!(both_old(false) > 0);
    assert_eq!(both_old(true), 0);
}

#[test]
fn a_run_follows_from_its_seed() {
    let outcomes: Vec<_> = (0..50).map(|seed| store_buffering(seed, false)).collect();
    let again: Vec<_> = (0..50).map(|seed| store_buffering(seed, false)).collect();
    assert_eq!(outcomes, again);
}

#[test]
fn a_spin_on_what_nobody_changes_is_a_deadlock() {
    let line: Rc<Line> = Rc::default();
    let mut machine = Machine::new(PCID, &[0, 1], Chooser::random(1, None), false);
    machine.lines.register(&*line);
    let spin = Rc::clone(&line);
    let bodies: Vec<Box<dyn FnOnce()>> = vec![
        Box::new(move || {
            while load(&spin) == 0 {
                relax();
            }
        }),
        Box::new(|| ()),
    ];
    let machine = run(machine, calls(), bodies);
    assert!(
        machine
            .failure
            .is_some_and(|message| message.contains("deadlock: CPUs [0]"))
    );
}

#[test]
fn a_shared_word_must_be_registered() {
    let machine = Machine::new(PCID, &[0], Chooser::random(1, None), false);
    let body: Box<dyn FnOnce()> = Box::new(|| store(&Line::default(), 1));
    let machine = run(machine, calls(), vec![body]);
    assert!(
        machine
            .failure
            .is_some_and(|message| message.contains("outside of slots"))
    );
}

/// What a TLB holds: the kind of each entry and its tag.
type Contents = Vec<(Kind, u16)>;

/// Fills one CPU's TLB in two PCIDs and the global pages, then drops something; gives what is left.
fn left_after(drop: fn()) -> Contents {
    left_after_on(PCID, drop)
}

fn left_after_on(mode: Mode, drop: fn()) -> Contents {
    let mut machine = Machine::new(mode, &[0], Chooser::replay(Default::default()), false);
    let memory = &mut machine.memory;
    let roots = [memory.take_root(), memory.take_root()];
    for root in roots {
        let (middle, table) = (memory.take(), memory.take());
        memory.initialize(root, 0, physical::entry(middle, 0));
        memory.initialize(middle, 0, physical::entry(table, 0));
        for page in 0..2 {
            let frame = memory.take();
            memory.initialize(table, page, physical::entry(frame, LEAF));
        }
    }
    let (table, frame) = (memory.take(), memory.take());
    memory.initialize(memory.kernel_middle(), 0, physical::entry(table, 0));
    memory.initialize(table, 0, physical::entry(frame, LEAF | GLOBAL));
    let body: Box<dyn FnOnce()> = Box::new(move || {
        let cr3 =
            |space: usize| physical::physical_address(roots[space]) | (space as u64 + 1) | 1 << 63;
        // SAFETY: no code of the simulated machine is translated.
        unsafe {
            X86::write_cr4(CR4_PGE | CR4_PCIDE);
            for space in [1, 0] {
                X86::write_cr3(cr3(space));
                with(|m| {
                    m.fill(0, 0);
                    m.fill(0, 1);
                });
            }
        }
        with(|m| m.fill(0, layout::USER_PAGES));
        drop();
    });
    let machine = run(machine, calls(), vec![body]);
    assert_eq!(machine.failure, None);
    let entries = machine.cpus[0].tlb.entries.iter();
    entries
        .map(|entry| (entry.kind, if entry.global { 0 } else { entry.tag }))
        .collect()
}

fn count(contents: &Contents, kind: Kind, tag: u16) -> usize {
    contents
        .iter()
        .filter(|entry| **entry == (kind, tag))
        .count()
}

#[test]
fn invlpg_drops_a_page_and_all_cached_tables_of_its_pcid() {
    let before = left_after(|| ());
    assert_eq!(
        (
            count(&before, Kind::Page, 1),
            count(&before, Kind::Page, 2),
            count(&before, Kind::Page, 0)
        ),
        (2, 2, 1)
    );
    assert!(count(&before, Kind::Region, 1) > 0 && count(&before, Kind::Top, 1) > 0);
    let left = left_after(|| X86::invlpg(0));
    assert_eq!(
        (count(&left, Kind::Page, 1), count(&left, Kind::Page, 2)),
        (1, 2)
    );
    assert_eq!(
        (count(&left, Kind::Region, 1), count(&left, Kind::Top, 1)),
        (0, 0)
    );
    assert!(count(&left, Kind::Region, 2) > 0);
    let left = left_after(|| X86::invlpg(layout::address(layout::USER_PAGES)));
    assert_eq!(
        (count(&left, Kind::Page, 0), count(&left, Kind::Page, 1)),
        (0, 2)
    );
}

#[test]
fn with_tce_invlpg_keeps_tables_that_do_not_lead_to_its_address() {
    let tce = Mode::X86 {
        pcid: true,
        invpcid: true,
        invlpgb: true,
        tce: true,
    };
    let tables = |left: &Contents| (count(left, Kind::Region, 1), count(left, Kind::Top, 1));
    // The kernel's stay.
    assert_eq!(tables(&left_after_on(tce, || ())), (2, 2));
    let next_region = left_after_on(tce, || X86::invlpg(layout::REGION_BYTES));
    assert_eq!(tables(&next_region), (2, 1));
    assert_eq!(tables(&left_after_on(tce, || X86::invlpg(0))), (1, 1));
}

#[test]
fn invpcid_and_control_registers_drop_what_the_manual_says() {
    let left = left_after(|| X86::invpcid(InvpcidKind::Single, 2, 0));
    assert_eq!(
        (
            count(&left, Kind::Page, 1),
            count(&left, Kind::Page, 2),
            count(&left, Kind::Page, 0)
        ),
        (2, 0, 1)
    );
    let left = left_after(|| X86::invpcid(InvpcidKind::AllButGlobals, 0, 0));
    assert_eq!(left, [(Kind::Page, 0)]);
    assert!(left_after(|| X86::invpcid(InvpcidKind::AllWithGlobals, 0, 0)).is_empty());
    // SAFETY: no code of the simulated machine is translated.
    let toggled = left_after(|| unsafe { X86::write_cr4(X86::read_cr4() ^ CR4_PGE) });
    assert!(toggled.is_empty());
    // SAFETY: as above.
    let reloaded = left_after(|| unsafe { X86::write_cr3(X86::read_cr3()) });
    assert_eq!(
        (
            count(&reloaded, Kind::Page, 1),
            count(&reloaded, Kind::Page, 2),
            count(&reloaded, Kind::Page, 0)
        ),
        (0, 2, 1)
    );
}
