//! What the hypervisor does, and what it leaves alone.

use core::sync::atomic::Ordering::Relaxed;
use std::rc::Rc;

use super::{
    Hypervisor, Kind, Vcpu, halt,
    hypercall::{Flush, Processors},
    kick,
    registers::write_msr,
};
use crate::{
    chooser::Chooser,
    guest::Guest,
    machine::{
        Machine, Mode,
        current::{Calls, with},
        layout,
        physical::{GLOBAL, LEAF, entry, physical_address},
        scheduler::run,
        tlb::{self, Entry},
    },
    scenario::index_of_region,
};

const MODE: Mode = Mode::X86 {
    pcid: true,
    invpcid: true,
    invlpgb: false,
    tce: false,
};
const KERNEL_PAGE: u8 = layout::USER_PAGES;

/// The guest's memory is leaked: a machine holds on to it.
fn machine(kind: Kind, cpus: usize) -> (Machine, &'static Guest) {
    let guest: &Guest = Box::leak(Box::new(Guest::new(cpus)));
    let numbers: Vec<usize> = (0..cpus).collect();
    let mut machine = Machine::new(MODE, &numbers, Chooser::replay(Default::default()), false);
    let indices = (0..cpus as u32).map(|cpu| 70 * cpu).collect();
    let hypervisor = Hypervisor::new(kind, indices, &guest.steal, &guest.input);
    machine.hypervisor = Some(Box::new(hypervisor));
    let frame = machine.memory.take();
    let index = index_of_region(layout::region_of(KERNEL_PAGE));
    let middle = machine.memory.kernel_middle();
    machine
        .memory
        .initialize(middle, index, entry(frame, LEAF | GLOBAL));
    (machine, guest)
}

fn calls() -> Calls {
    Calls {
        interrupt: Rc::new(|| ()),
        user_access_ok: Rc::new(|| false),
    }
}

fn run_one(kind: Kind, body: impl Fn(&'static Guest) + 'static) {
    let (machine, guest) = machine(kind, 1);
    let machine = run(machine, calls(), vec![Box::new(move || body(guest))]);
    assert_eq!(machine.failure, None);
}

/// Makes the preempted byte the host's.
fn enable_steal_time(guest: &'static Guest) {
    write_msr(0x4b56_4d03, core::ptr::from_ref(&guest.steal[0]) as u64 | 1);
}

#[test]
fn a_vcpu_that_is_out_keeps_its_tlb_and_does_nothing() {
    run_one(Kind::Kvm, |guest| {
        enable_steal_time(guest);
        let byte = guest.steal[0].preempted_byte();
        with(|m| {
            m.fill(0, KERNEL_PAGE);
            let cached = m.cpus[0].tlb.entries.clone();
            assert!(!cached.is_empty());
            m.preempt(0);
            assert_eq!(byte.load(Relaxed), 0, "the guest is told later");
            assert_eq!(
                (m.options().active, m.options().preempt, m.options().host),
                (0, 0, 1)
            );
            m.advance(0);
            assert_eq!((m.cpus[0].vcpu, byte.load(Relaxed)), (Vcpu::Out, 1));
            m.advance(0);
            assert_eq!((m.cpus[0].vcpu, byte.load(Relaxed)), (Vcpu::Entering, 0));
            assert_eq!(m.options().active, 0);
            m.advance(0);
            assert_eq!(m.cpus[0].vcpu, Vcpu::In);
            assert_eq!(m.cpus[0].tlb.entries, cached);
        });
    });
}

#[test]
fn a_request_is_taken_on_entry_once() {
    run_one(Kind::Kvm, |guest| {
        enable_steal_time(guest);
        let byte = guest.steal[0].preempted_byte();
        with(|m| {
            m.fill(0, KERNEL_PAGE);
            m.preempt(0);
            // Not yet told: whatever the byte holds now is overwritten.
            byte.store(2, Relaxed);
            assert!(!m.owes_flush(0));
            m.advance(0);
            assert!(!m.owes_flush(0));
            byte.store(3, Relaxed);
            assert!(m.owes_flush(0));
            m.advance(0);
            assert!(!m.owes_flush(0));
            assert_eq!(byte.load(Relaxed), 0);
            assert!(m.cpus[0].tlb.entries.is_empty());
            // Too late: the vCPU is on its way in.
            byte.store(3, Relaxed);
            m.fill(0, KERNEL_PAGE);
            m.advance(0);
            assert!(!m.owes_flush(0) && !m.cpus[0].tlb.entries.is_empty());
            byte.store(0, Relaxed);
        });
    });
}

#[test]
fn without_steal_time_nothing_is_told() {
    run_one(Kind::Kvm, |guest| {
        let byte = guest.steal[0].preempted_byte();
        with(|m| {
            m.preempt(0);
            m.advance(0);
            assert_eq!(byte.load(Relaxed), 0);
            byte.store(3, Relaxed);
            assert!(!m.owes_flush(0));
            m.advance(0);
            m.advance(0);
        });
        assert_eq!(byte.load(Relaxed), 3);
    });
}

/// A user translation, a table that leads to it, and a global one of the kernel's.
fn some_entries(m: &Machine, scope: u8, tag: u16) -> [Entry; 3] {
    let page = Entry {
        tag,
        global: false,
        kind: tlb::Kind::Page,
        base: 0x1000,
        frame: 5,
        generation: m.memory.generation(5).unwrap_or(0),
        writable: true,
        times: [1; 3],
        scope,
        common: false,
    };
    let table = Entry {
        kind: tlb::Kind::Region,
        base: 0,
        ..page
    };
    let global = Entry {
        global: true,
        base: layout::address(KERNEL_PAGE),
        scope: 0,
        ..page
    };
    [page, table, global]
}

/// What is left on CPU 1, of the spaces 1 and 2: which of their entries, and of CPU 0: how many.
fn left_after(flush: &dyn Fn(u64) -> Flush) -> (Vec<(u8, usize)>, usize) {
    let (mut m, _) = machine(Kind::HyperV { banks: true }, 2);
    let roots = [m.memory.take(), m.memory.take()];
    let scopes = roots.map(|root| m.oracle.new_scope(root));
    let all = [
        some_entries(&m, scopes[0], 1),
        some_entries(&m, scopes[1], 2),
    ];
    for cpu in 0..2 {
        m.cpus[cpu].tlb.entries = all.concat();
    }
    m.flush_processor(1, &flush(physical_address(roots[0])), 0);
    let left = m.cpus[1].tlb.entries.iter();
    let left = left.filter_map(|entry| {
        let space = all.iter().position(|of| of.contains(entry))?;
        Some((
            space as u8 + 1,
            all[space].iter().position(|other| other == entry)?,
        ))
    });
    (left.collect(), m.cpus[0].tlb.entries.len())
}

const EVERYTHING: Flush = Flush {
    space: None,
    keeps_globals: false,
    processors: Processors::All,
    list: None,
    start: 0,
};

#[test]
fn hypercalls_drop_what_they_name_where_they_name_it() {
    let (left, elsewhere) = left_after(&|_| EVERYTHING);
    assert_eq!((left, elsewhere), (vec![], 6));
    let (left, _) = left_after(&|_| Flush {
        keeps_globals: true,
        ..EVERYTHING
    });
    assert_eq!(left, [(1, 2), (2, 2)]);
    let (left, _) = left_after(&|root| Flush {
        space: Some(root),
        keeps_globals: true,
        ..EVERYTHING
    });
    assert_eq!(left, [(1, 2), (2, 0), (2, 1), (2, 2)]);
    let (left, _) = left_after(&|root| Flush {
        space: Some(root),
        list: Some(vec![(0, 0x1fff)]),
        ..EVERYTHING
    });
    assert_eq!(left, [(1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
    let (left, _) = left_after(&|root| Flush {
        space: Some(root),
        list: Some(vec![(0x2000, 0x2fff)]),
        ..EVERYTHING
    });
    assert_eq!(left.len(), 6);
    // A PCID in the address space's root names nothing.
    let (left, _) = left_after(&|root| Flush {
        space: Some(root | 1),
        keeps_globals: true,
        ..EVERYTHING
    });
    assert_eq!(left.len(), 6);
}

/// CPU 0 halts with interrupts off; what is CPU 1 to do?
fn halts_while(other: impl Fn() + 'static) -> Option<String> {
    let (machine, _) = machine(Kind::Kvm, 2);
    let bodies: Vec<Box<dyn FnOnce()>> = vec![
        Box::new(|| {
            with(|m| m.cpus[0].interrupts_on = false);
            halt(false);
            with(|m| m.cpus[0].interrupts_on = true);
        }),
        Box::new(other),
    ];
    run(machine, calls(), bodies).failure
}

#[test]
fn preemptions_do_not_hide_a_deadlock() {
    for seed in 0..50 {
        let (mut machine, _) = machine(Kind::Kvm, 2);
        machine.chooser = Chooser::random(seed, None);
        let bodies = (0..2).map(|cpu: usize| {
            Box::new(move || {
                with(|m| m.cpus[cpu].interrupts_on = false);
                halt(false);
            }) as Box<dyn FnOnce()>
        });
        let failure = run(machine, calls(), bodies.collect()).failure;
        assert!(failure.is_some_and(|failure| failure.contains("deadlock")));
    }
}

#[test]
fn a_cpu_that_halts_with_interrupts_off_needs_a_kick() {
    assert_eq!(halts_while(|| kick(0)), None);
    let interrupt = || {
        with(|m| {
            m.cpus[1].published = true;
            m.send_interrupt(0, false);
            m.deliver(0);
        });
    };
    let failure = halts_while(interrupt);
    assert!(failure.is_some_and(|failure| failure.contains("deadlock")));
}
