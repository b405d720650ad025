//! What all example kernels do: bring the machine up under a backend, run the workloads, report.

use raw_cpuid::CpuId;
#[cfg(feature = "break-flush")]
use shootdown::x86_64::skip_invalidations;
use shootdown::{
    TlbFlusher,
    x86_64::{Config, InitError, detect},
};
use shootdown_workload::{Options, run};

use crate::{
    cmdline,
    exit::{Exit, exit},
    frames,
    machine::Pc,
    paging::kernel_root,
    platform::{FLUSH_VECTOR, Kernel},
    println, smp, traps,
};

/// The configuration of the flusher for this machine: the kernel's mappings are all global where the CPU has global
/// pages.
pub fn config() -> Config {
    let global = CpuId::new().get_feature_info().is_some_and(|f| f.has_pge());
    Config::new(detect(), kernel_root()).kernel_mappings_global(global)
}

/// A kernel without the feature is what ships: it can't skip anything.
#[cfg(not(feature = "break-flush"))]
fn skip_invalidations(skip: bool) {
    if skip {
        println!("break-flush needs a kernel that is built with the feature of that name");
        exit(Exit::Usage)
    }
}

/// Runs the workloads under `tlb` on as many CPUs as the command line says, prints the report, and ends the run.
/// `on_flush_interrupt` serves the flush interrupt, `init` initializes the flusher.
///
/// # Panics
/// When the flusher refuses to be set up, or frames leaked.
pub fn demo<F: TlbFlusher<Platform = Kernel>>(
    tlb: &'static F,
    backend: &'static str,
    init: fn(Config) -> Result<(), InitError>,
    on_flush_interrupt: extern "C" fn(),
) -> ! {
    let options = match Options::parse(cmdline::get()) {
        Ok(options) => options,
        Err(error) => {
            println!("{error}");
            exit(Exit::Usage)
        }
    };
    init(config()).expect("the configuration suits this machine");
    traps::set_fast_handler::<FLUSH_VECTOR>(on_flush_interrupt);
    let cpus = smp::start(options.cpus);
    smp::run_on_all(&|cpu| {
        if let Err(error) = tlb.online() {
            panic!("CPU {cpu}: {error}");
        }
    });
    println!(
        "{backend} on {cpus} CPUs, {} rounds, seed {}",
        options.rounds, options.seed
    );

    let before = frames::available();
    if options.break_flush {
        println!("the invalidation instructions are skipped: stale reads must show");
        skip_invalidations(true);
    }
    let outcome = run(&Pc(tlb), backend, &options);
    skip_invalidations(false);
    assert_eq!(frames::available(), before, "frames leaked");

    println!("{}", outcome.report.table());
    println!("{}", outcome.report.json());
    if outcome.report.stale > 0 {
        println!(
            "{} of the stale reads were on another CPU than the one that unmapped",
            outcome.stale_elsewhere
        );
    }
    let proven = if options.break_flush {
        outcome.stale_elsewhere > 0
    } else {
        outcome.report.stale > 0
    };
    exit(if proven { Exit::Stale } else { Exit::Success })
}
