//! Example kernel: a process that runs on one CPU disturbs no other.
//!
//! Text and log go where the `broadcast` kernel's go.
#![no_std]
#![no_main]

use aarch64_rt::entry;
use shootdown::aarch64::Local;
use shootdown_examples_aarch64::console;
use shootdown_examples_aarch64::demo::demo;
use shootdown_examples_aarch64::machine::Virt;
use shootdown_examples_aarch64::platform::Kernel;
use shootdown_workload::{Class, Classes, Machine, Options, Outcome, run_with_processes};

const BACKEND: &str = "local";

static TLB: Local<Kernel> = Local::new();

entry!(main, 64);
fn main(_: u64, _: u64, _: u64, _: u64) -> ! {
    demo(&TLB, BACKEND, work)
}

fn work(machine: &Virt<Local<Kernel>>, options: &Options) -> Outcome {
    let (outcome, classes) = run_with_processes(machine, BACKEND, options);
    console::line(format_args!("{}", Classes(&classes)));
    check(&classes, machine.cpus(), options.break_flush);
    outcome
}

/// Checks that each class of processes disturbed whom it had to, and nobody else.
///
/// # Panics
/// When it did not.
fn check(classes: &[Class; 3], cpus: usize, break_flush: bool) {
    let [single, two, many] = classes;
    for class in classes {
        assert_eq!(
            class.seen.local_tables, 0,
            "{}: freed tables were flushed on one CPU only",
            class.name
        );
    }
    assert_eq!(
        single.seen.remote, single.tables_freed,
        "a process of one thread disturbed other CPUs"
    );
    assert!(single.seen.local > 0 && single.seen.elided > 0);
    if cpus == 1 {
        return;
    }
    assert!(single.seen.migrations > 0, "nothing migrated");
    // A first load finds no clean bit either, but has nothing to drop.
    assert!(
        single.seen.late > single.first_loads,
        "no process came back to a CPU whose entries were stale"
    );
    assert!(
        two.seen.local > 0,
        "with one thread asleep, the other one's flushes stay local"
    );
    for class in [two, many] {
        assert!(
            class.seen.remote > class.tables_freed,
            "{}: CPUs that run it were not told",
            class.name
        );
    }
    if break_flush {
        assert!(
            many.seen.stale_elsewhere > 0,
            "no other CPU of a process of many threads noticed"
        );
    }
}
