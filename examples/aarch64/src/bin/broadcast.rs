//! Example kernel: TLB invalidation that the hardware broadcasts.
//!
//! The report is text on semihosting. The log is defmt's, on the UART: boot with `-serial file:log.bin` in place of
//! `-serial null`, and decode it by `defmt-print -e ELF < log.bin`.
#![no_std]
#![no_main]

use aarch64_rt::entry;
use shootdown::TlbFlusher;
use shootdown::aarch64::{Broadcast, skip_invalidations};
use shootdown_examples_aarch64::console::{self, CommandLine};
use shootdown_examples_aarch64::crew::Crew;
use shootdown_examples_aarch64::machine::Virt;
use shootdown_examples_aarch64::platform::{self, Kernel};
use shootdown_examples_aarch64::{boot, cpu, frames};
use shootdown_workload::{Options, run};

const BACKEND: &str = "broadcast";

static TLB: Broadcast<Kernel> = Broadcast::new();

entry!(main, 64);
fn main(_: u64, _: u64, _: u64, _: u64) -> ! {
    boot::init_cpu(0);
    let line = CommandLine::read(BACKEND);
    let options = Options::parse(line.as_str()).unwrap_or_else(|error| refuse(error));
    // Before anything is asked of the firmware, which at EL2 is not where this kernel looks for it.
    TLB.init(platform::config())
        .unwrap_or_else(|error| refuse(error));
    let present = cpu::present();
    let cpus = options.cpus.unwrap_or(present);
    if !(1..=present).contains(&cpus) {
        refuse(format_args!("cpus={cpus}: the machine has {present}"));
    }
    bring_online(0);
    let crew = Crew::start(cpus, bring_online).unwrap_or_else(|error| refuse(error));
    console::line(format_args!(
        "{BACKEND} on {cpus} CPUs, {} rounds, seed {}",
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
    let outcome = run(&Virt::new(crew, &TLB), BACKEND, &options);
    skip_invalidations(false);
    assert_eq!(frames::available(), before, "frames leaked");

    let report = outcome.report;
    console::line(format_args!("{}", report.table()));
    console::line(format_args!("{}", report.json()));
    defmt::info!("{}", TLB.counters());
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

fn bring_online(cpu: usize) {
    if let Err(error) = TLB.online() {
        panic!("CPU {cpu}: {error}");
    }
    defmt::info!("CPU {} is online", cpu);
}

fn refuse(why: impl core::fmt::Display) -> ! {
    console::line(format_args!("{BACKEND}: {why}"));
    console::exit(console::EXIT_REFUSED)
}
