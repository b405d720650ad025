//! What the example kernels do: bring the machine up under a policy, run the workloads, report.

use shootdown::TlbFlusher;
use shootdown::aarch64::Tlb;
use shootdown::aarch64::policy::Policy;
#[cfg(feature = "break-flush")]
use shootdown::aarch64::skip_invalidations;
use shootdown_workload::{Options, Outcome};

use crate::console::{self, CommandLine};
use crate::crew::Crew;
use crate::machine::Virt;
use crate::platform::{self, Kernel};
use crate::{boot, cpu, frames};

/// Runs `work` under `tlb` on as many CPUs as the command line says, prints the report, and ends the run. The first thing
/// that the boot CPU calls.
///
/// # Panics
/// When a CPU is refused, or frames leaked.
pub fn demo<M: Policy>(
    tlb: &'static Tlb<Kernel, M>,
    backend: &'static str,
    work: fn(&Virt<Tlb<Kernel, M>>, &Options) -> Outcome,
) -> ! {
    boot::init_cpu(0);
    let line = CommandLine::read(backend);
    let options = Options::parse(line.as_str()).unwrap_or_else(|error| refuse(backend, error));
    if options.skipped.is_some() {
        refuse(backend, "there is no such instruction to skip");
    }
    // Before anything is asked of the firmware, which at EL2 is not where this kernel looks for it.
    tlb.init(platform::config())
        .unwrap_or_else(|error| refuse(backend, error));
    let present = cpu::present();
    let cpus = options.cpus.unwrap_or(present);
    if !(1..=present).contains(&cpus) {
        refuse(
            backend,
            format_args!("cpus={cpus}: the machine has {present}"),
        );
    }
    let crew = Crew::start(cpus, |_| {}).unwrap_or_else(|error| refuse(backend, error));
    crew.run(&|cpu| {
        if let Err(error) = tlb.online() {
            panic!("CPU {cpu}: {error}");
        }
        defmt::info!("CPU {} is online", cpu);
    });
    console::line(format_args!(
        "{backend} on {cpus} CPUs, {} rounds, seed {}",
        options.rounds, options.seed
    ));
    defmt::info!(
        "start: {} CPUs, {} rounds, seed {}, {}",
        cpus,
        options.rounds,
        options.seed,
        frames::available()
    );
    let before = frames::available();
    if options.break_flush {
        console::line(format_args!(
            "the invalidation instructions are skipped: stale reads must show"
        ));
        defmt::warn!("the invalidation instructions are skipped");
        skip_invalidations(true);
    }
    let outcome = work(&Virt::new(crew, tlb), &options);
    skip_invalidations(false);
    assert_eq!(frames::available(), before, "frames leaked");
    defmt::info!("{}", tlb.counters());
    finish(&options, &outcome)
}

/// Prints the report and exits.
fn finish(options: &Options, outcome: &Outcome) -> ! {
    let report = outcome.report;
    console::line(format_args!("{}", report.table()));
    console::line(format_args!("{}", report.json()));
    if report.stale > 0 {
        console::line(format_args!(
            "{} of the stale reads were on another CPU than the one that unmapped",
            outcome.stale_elsewhere
        ));
        defmt::warn!(
            "{} stale reads, {} elsewhere",
            report.stale,
            outcome.stale_elsewhere
        );
    }
    // The counter-proof is about other CPUs: the hardware's broadcast is what it takes away.
    let stale = if options.break_flush {
        outcome.stale_elsewhere
    } else {
        report.stale
    };
    console::exit(if stale > 0 {
        console::EXIT_STALE
    } else {
        console::EXIT_OK
    })
}

/// A kernel without the feature is what ships: it can't skip anything.
#[cfg(not(feature = "break-flush"))]
fn skip_invalidations(skip: bool) {
    if skip {
        refuse(
            "break-flush",
            "needs a kernel that is built with the feature of that name",
        )
    }
}

fn refuse(backend: &str, why: impl core::fmt::Display) -> ! {
    console::line(format_args!("{backend}: {why}"));
    console::exit(console::EXIT_REFUSED)
}
