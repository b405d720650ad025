//! The protocol that was posted for waiting vCPUs under KVM ("Para-virtualized TLB flush for PV-waiting vCPUs", Ishiguro,
//! 2025): a vCPU that waits uses stale translations, even where nobody flushes in a critical section.

use shootdown::variant::Broken;

use super::{
    BackendKind, Spec,
    actor::Work,
    op::{Manner, Op},
    run,
};

const MANNER: Manner = Manner {
    outside: false,
    masked: false,
    all: false,
};
const SCHEDULES: u64 = 3000;

/// Two CPUs that contend for a lock and use a page before and after; one that unmaps it.
fn script() -> Vec<Vec<Op>> {
    let switch = Op::Switch {
        space: 0,
        masked: false,
    };
    let touch = Op::Touch {
        page: 0,
        write: false,
        demand: false,
    };
    let section = Op::Halting {
        masked: true,
        nested: false,
        page: 0,
        work: Work::Steps(30),
    };
    let map = Op::Map {
        space: 0,
        page: 0,
        writable: true,
    };
    let unmap = Op::Unmap {
        space: 0,
        first: 0,
        count: 1,
        manner: MANNER,
    };
    let user = [
        switch, touch, section, touch, section, touch, section, touch,
    ];
    vec![user.to_vec(), user.to_vec(), vec![map, unmap, map, unmap]]
}

/// The failures of all schedules.
fn failures(broken: Option<Broken>) -> Vec<String> {
    (0..SCHEDULES)
        .filter_map(|seed| {
            let mut spec = Spec::new(BackendKind::Kvm, 3, seed);
            spec.broken = broken;
            spec.script = Some(script());
            run(&spec).failure.map(|failure| failure.message)
        })
        .collect()
}

#[test]
fn the_posted_wait_uses_stale_translations() {
    let failures = failures(Some(Broken::WaitAsPosted));
    assert!(!failures.is_empty());
    for failure in &failures {
        assert!(failure.contains("has completed"), "{failure}");
    }
}

#[test]
fn ours_does_not() {
    assert_eq!(failures(None), Vec::<String>::new());
}
