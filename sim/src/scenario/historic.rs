//! Historic bugs of other kernels, one scripted scenario each: clean as the crate is, caught with the same mistake.

use shootdown::variant::Broken;

use super::{
    BackendKind, Spec,
    op::{Manner, Op},
    run,
};

const INSIDE: Manner = Manner {
    outside: false,
    masked: false,
    all: false,
};
const OUTSIDE: Manner = Manner {
    outside: true,
    ..INSIDE
};
const MASKED: Manner = Manner {
    masked: true,
    ..INSIDE
};
const IPI: BackendKind = BackendKind::Ipi;
const CONCURRENT: BackendKind = BackendKind::ConcurrentIpi;
const INVLPGB: BackendKind = BackendKind::Invlpgb;
const BROADCAST: BackendKind = BackendKind::Broadcast;

/// So many schedules of each scenario are tried.
const SCHEDULES: u64 = 1500;

/// The first schedule that breaks the contract. On a thread of its own: one that has caught a panic of the crate can't
/// report a failed test any more.
fn first_failure(backend: BackendKind, script: &[&[Op]], broken: Option<Broken>) -> Option<String> {
    let search = || {
        (0..SCHEDULES).find_map(|seed| {
            let mut spec = Spec::new(backend, script.len(), seed);
            spec.broken = broken;
            spec.script = Some(script.iter().map(|ops| ops.to_vec()).collect());
            run(&spec)
                .failure
                .map(|failure| format!("seed {seed}: {}", failure.message))
        })
    };
    std::thread::scope(|scope| scope.spawn(search).join()).expect("the simulator does not panic")
}

fn clean_unless(backends: &[BackendKind], script: &[&[Op]], broken: &[Broken]) {
    for backend in backends {
        assert_eq!(first_failure(*backend, script, None), None, "{backend:?}");
        for broken in broken {
            assert!(
                first_failure(*backend, script, Some(*broken)).is_some(),
                "{backend:?} with {broken:?}"
            );
        }
    }
}

const fn switch(space: u8) -> Op {
    Op::Switch {
        space,
        masked: false,
    }
}

const fn touch(page: u8) -> Op {
    Op::Touch {
        page,
        write: true,
        demand: true,
    }
}

const fn map(page: u8) -> Op {
    Op::Map {
        space: 0,
        page,
        writable: true,
    }
}

const fn unmap(page: u8, manner: Manner) -> Op {
    Op::Unmap {
        space: 0,
        first: page,
        count: 1,
        manner,
    }
}

const fn pin(space: u8) -> Op {
    Op::Pin {
        space,
        global: true,
    }
}

/// CVE-2018-18281: an entry that another thread has cleared, and not yet flushed, was taken for gone.
#[test]
fn a_cleared_entry_is_not_taken_for_flushed() {
    let gather = Op::Gather {
        space: 0,
        first: 0,
        count: 2,
        tables: false,
        split: true,
        small: false,
    };
    let script: [&[Op]; 3] = [
        &[map(0), map(1), gather, map(0), gather],
        &[map(0), map(0), map(1), map(0)],
        &[switch(0), touch(0), touch(0), touch(1), touch(0), touch(0)],
    ];
    clean_unless(&[IPI, BROADCAST], &script, &[Broken::NoGatherMark]);
}

/// CVE-2025-37964, 83b0177a6c48: a flush met a CPU between two spaces.
#[test]
fn a_cpu_between_two_spaces_is_not_missed() {
    let script: [&[Op]; 2] = [
        &[
            switch(0),
            touch(0),
            switch(1),
            switch(0),
            touch(0),
            switch(1),
            switch(0),
            touch(0),
            switch(1),
            switch(0),
        ],
        &[
            map(0),
            unmap(0, INSIDE),
            map(0),
            unmap(0, INSIDE),
            map(0),
            unmap(0, INSIDE),
            map(0),
            unmap(0, OUTSIDE),
        ],
    ];
    clean_unless(
        &[IPI, CONCURRENT],
        &script,
        &[Broken::SwitchingSkipped, Broken::SwitchingDone],
    );
}

/// The zap of upper entries, January 2025: freed tables were flushed as if only leaves had changed.
#[test]
fn freed_tables_reach_lazy_cpus() {
    let free = Op::FreeTable {
        space: 0,
        region: 0,
        zap: true,
        whole: false,
        manner: INSIDE,
    };
    let script: [&[Op]; 2] = [
        &[
            switch(0),
            touch(0),
            Op::LazyEnter,
            Op::LazyLeave,
            touch(1),
            Op::LazyEnter,
            Op::LazyLeave,
        ],
        &[map(0), free, map(0), map(1), free, map(1), free],
    ];
    clean_unless(
        &[IPI, CONCURRENT],
        &script,
        &[Broken::LazySkippedFreed, Broken::LazyStays],
    );
    clean_unless(&[BROADCAST], &script, &[Broken::TlbiLeafForTable]);
}

/// CVE-2021-4002, CVE-2022-39188, CVE-2022-0330: a page was given away before its flush was complete.
#[test]
fn pages_are_reused_after_completion_only() {
    let script: [&[Op]; 2] = [
        &[switch(0), touch(0), touch(1), touch(0), touch(1)],
        &[
            switch(0),
            map(0),
            unmap(0, OUTSIDE),
            map(1),
            unmap(1, OUTSIDE),
            map(0),
            unmap(0, INSIDE),
        ],
    ];
    clean_unless(&[IPI, CONCURRENT], &script, &[Broken::NoWait]);
    clean_unless(&[BROADCAST], &script, &[Broken::NoDsbAfter]);
}

/// FreeBSD's PG_PROMOTED: a large page that was made of small ones, or split, was dropped in part only.
#[test]
fn resized_pages_go_as_a_whole() {
    let resize = Op::Resize {
        space: 0,
        region: 0,
        manner: INSIDE,
    };
    let script: [&[Op]; 2] = [
        &[
            switch(0),
            touch(0),
            touch(3),
            touch(1),
            touch(2),
            touch(0),
            touch(3),
        ],
        &[
            map(0),
            map(3),
            resize,
            resize,
            unmap(3, INSIDE),
            resize,
            unmap(0, INSIDE),
        ],
    ];
    clean_unless(&[IPI, CONCURRENT, BROADCAST], &script, &[Broken::SkipFlush]);
}

/// Uros 317, Asterinas 1602, Redox 4158d899: two initiators with interrupts off waited for each other.
#[test]
fn initiators_with_interrupts_off_serve_each_other() {
    let kernel = Op::KernelUnmap {
        first: 16,
        count: 2,
        manner: MASKED,
    };
    let other = Op::Unmap {
        space: 1,
        first: 0,
        count: 2,
        manner: MASKED,
    };
    let script: [&[Op]; 3] = [
        &[
            switch(0),
            map(0),
            unmap(0, MASKED),
            Op::KernelMap { page: 16 },
            kernel,
            map(0),
            unmap(0, MASKED),
        ],
        &[
            switch(0),
            map(1),
            unmap(1, MASKED),
            Op::KernelMap { page: 17 },
            kernel,
            other,
        ],
        &[
            switch(1),
            kernel,
            Op::Map {
                space: 1,
                page: 0,
                writable: true,
            },
            other,
            kernel,
            unmap(2, MASKED),
        ],
    ];
    clean_unless(&[IPI, CONCURRENT], &script, &[Broken::AckBeforeFlush]);
}

/// seL4 PR 107: without PCIDs the other CPUs were not flushed at all.
#[test]
fn other_cpus_are_flushed_with_and_without_pcids() {
    let script: [&[Op]; 2] = [
        &[switch(0), touch(0), touch(0), touch(0)],
        &[
            switch(0),
            map(0),
            unmap(0, INSIDE),
            map(0),
            unmap(0, INSIDE),
        ],
    ];
    clean_unless(
        &[IPI, CONCURRENT],
        &script,
        &[Broken::SkipFlush, Broken::SkipLocal],
    );
}

/// Linux 6.15's allocator of global PCIDs, whose test for exhaustion can't succeed: two spaces got the same one.
#[test]
fn no_two_spaces_get_one_global_pcid() {
    let script: [&[Op]; 2] = [
        &[pin(0), switch(0), touch(0), touch(1), touch(0)],
        &[pin(1), switch(1), touch(0), touch(1), switch(0), touch(0)],
    ];
    clean_unless(&[INVLPGB], &script, &[Broken::PcidAliased]);
}

/// The transition to a global PCID in Linux 6.15, mended after it was merged: a flush took it for ended while CPUs ran the space
/// with their own PCIDs.
#[test]
fn a_space_settles_once_all_cpus_have_moved() {
    let script: [&[Op]; 3] = [
        &[
            switch(0),
            touch(0),
            touch(0),
            switch(1),
            switch(0),
            touch(0),
        ],
        &[
            switch(1),
            switch(0),
            touch(0),
            touch(0),
            switch(1),
            switch(0),
        ],
        &[
            map(0),
            pin(0),
            unmap(0, INSIDE),
            map(0),
            unmap(0, OUTSIDE),
            map(0),
            unmap(0, INSIDE),
        ],
    ];
    let early = [
        Broken::TransitionClearedEarly,
        Broken::PromotionSkipsSwitching,
    ];
    clean_unless(&[INVLPGB], &script, &early);
}

/// INVLPGB as a plain INVLPG: nothing waited for it, or it overtook the change that it was for.
#[test]
fn broadcasts_are_fenced_and_waited_for() {
    let script: [&[Op]; 2] = [
        &[switch(0), touch(0), touch(1), touch(0), touch(1), touch(1)],
        &[
            pin(0),
            map(0),
            unmap(0, OUTSIDE),
            map(0),
            unmap(0, INSIDE),
            map(0),
            map(1),
            Op::Unmap {
                space: 0,
                first: 0,
                count: 2,
                manner: MASKED,
            },
            map(0),
            map(1),
            Op::Unmap {
                space: 0,
                first: 0,
                count: 2,
                manner: OUTSIDE,
            },
        ],
    ];
    let variants = [
        Broken::NoFenceBeforeInvlpgb,
        Broken::NoTlbsync,
        Broken::TlbsyncElsewhere,
        Broken::InvlpgbShort,
    ];
    clean_unless(&[INVLPGB], &script, &variants);
}
