//! What all example kernels do: bring the machine up under a backend, run the workloads, report.

use raw_cpuid::CpuId;
use shootdown::{
    TlbFlusher,
    x86_64::{Config, InitError, detect, skip_invalidations},
};
use shootdown_workload::{Options, run};

use crate::{
    cmdline, cost,
    exit::{Exit, exit},
    frames, host,
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

/// What a kernel does besides, each by default nothing.
#[derive(Clone, Copy, Debug)]
pub struct Extras {
    /// On the boot CPU, before any CPU is online. Is told how many there will be.
    pub boot: fn(usize),
    /// On each CPU, before it comes online.
    pub cpu: fn(),
    /// On the boot CPU, before the workloads, with all CPUs online. How many of its reads were stale.
    pub workload: fn() -> u64,
    /// On the boot CPU, after the workloads: prints what it has to say.
    pub report: fn(),
    /// Something to do instead of the workloads, if the command line says so.
    pub instead: Option<Instead>,
}

/// What a kernel does instead of the workloads.
#[derive(Clone, Copy, Debug)]
pub struct Instead {
    /// The word of the command line that asks for it, which no other kernel knows.
    pub word: &'static str,
    /// On the boot CPU, with all CPUs online. Whether a read was stale.
    pub act: fn() -> bool,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            boot: |_| {},
            cpu: || {},
            workload: || 0,
            report: || {},
            instead: None,
        }
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
    on_flush_interrupt: fn(),
) -> ! {
    demo_with(tlb, backend, init, on_flush_interrupt, Extras::default())
}

/// As [`demo`], for a kernel that does something besides.
///
/// # Panics
/// As [`demo`].
pub fn demo_with<F: TlbFlusher<Platform = Kernel>>(
    tlb: &'static F,
    backend: &'static str,
    init: fn(Config) -> Result<(), InitError>,
    on_flush_interrupt: fn(),
    extras: Extras,
) -> ! {
    let own_word = extras.instead.map_or("", |instead| instead.word);
    let options = match Options::parse_but_for(cmdline::get(), own_word) {
        Ok(options) => options,
        Err(error) => {
            println!("{error}");
            exit(Exit::Usage)
        }
    };
    init(config()).expect("the configuration suits this machine");
    traps::set_handler(FLUSH_VECTOR, on_flush_interrupt);
    let cpus = smp::start(options.cpus);
    (extras.boot)(cpus);
    smp::run_on_all(&|cpu| {
        (extras.cpu)();
        if let Err(error) = tlb.online() {
            panic!("CPU {cpu}: {error}");
        }
    });
    if let Some(Instead { word, act }) = extras.instead
        && cmdline::get().split_ascii_whitespace().any(|it| it == word)
    {
        exit(if act() { Exit::Stale } else { Exit::Success })
    }
    if options.cost {
        cost::measure(tlb);
        exit(Exit::Success)
    }
    println!(
        "{backend} on {cpus} CPUs, {} rounds, seed {}",
        options.rounds, options.seed
    );

    let before = frames::available();
    if options.break_flush {
        println!("the invalidation instructions are skipped: stale reads must show");
        skip_invalidations(true);
        host::skip_flushes(true);
    }
    let stale_before = (extras.workload)();
    let mut outcome = run(&Pc(tlb), backend, &options);
    skip_invalidations(false);
    host::skip_flushes(false);
    assert_eq!(frames::available(), before, "frames leaked");

    outcome.report.stale += stale_before;
    println!("{}", outcome.report.table());
    println!("{}", outcome.report.json());
    (extras.report)();
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
