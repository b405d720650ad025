//! What all example kernels do: bring the machine up under a backend, run the workloads, report.

use core::fmt;

use raw_cpuid::CpuId;
#[cfg(feature = "break-flush")]
use shootdown::x86_64::skip_invalidations;
use shootdown::{
    TlbFlusher,
    x86_64::{Config, Features, InitError, detect},
};
use shootdown_workload::{Options, Outcome, Phase, Phases, Skipped, run};

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
    config_of(detect())
}

/// As [`config`], for a CPU that has these features.
pub fn config_of(features: Features) -> Config {
    let global = CpuId::new().get_feature_info().is_some_and(|f| f.has_pge());
    Config::new(features, kernel_root()).kernel_mappings_global(global)
}

/// A demonstration: what the kernels do not have in common.
pub struct Demo<F: 'static> {
    /// The flusher.
    pub tlb: &'static F,
    /// Its name in the report.
    pub backend: &'static str,
    /// The configuration where this many CPUs take part.
    pub config: fn(usize) -> Config,
    /// Initializes the flusher.
    pub init: fn(Config) -> Result<(), InitError>,
    /// Serves the flush interrupt.
    pub on_flush_interrupt: extern "C" fn(),
    /// Skips one instruction alone, where the flusher executes it.
    pub skip: Option<fn(Skipped)>,
    /// Runs the workloads, and notes the phases that are of interest by themselves.
    pub work: fn(&Pc<F>, &'static str, &Options, &mut PhaseList) -> Outcome,
    /// What it does besides.
    pub extras: Extras,
}

impl<F> fmt::Debug for Demo<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demo")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

/// Phases, up to [`MOST`](Self::MOST).
#[derive(Clone, Copy, Debug, Default)]
pub struct PhaseList {
    phases: [Phase; Self::MOST],
    count: usize,
}

impl PhaseList {
    /// How many there may be.
    pub const MOST: usize = 8;

    /// Adds one.
    ///
    /// # Panics
    /// When there are too many.
    pub fn add(&mut self, phase: Phase) {
        self.phases[self.count] = phase;
        self.count += 1;
    }

    /// Those that were added.
    #[must_use]
    pub fn all(&self) -> &[Phase] {
        &self.phases[..self.count]
    }
}

/// A kernel without the feature is what ships: it can't skip anything.
#[cfg(not(feature = "break-flush"))]
fn skip_invalidations(skip: bool) {
    if skip {
        println!("break-flush needs a kernel that is built with the feature of that name");
        exit(Exit::Usage)
    }
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
    on_flush_interrupt: extern "C" fn(),
) -> ! {
    Demo::new(tlb, backend, init, on_flush_interrupt).run()
}

impl<F: TlbFlusher<Platform = Kernel>> Demo<F> {
    /// Only the workloads, and every flush with every instruction.
    pub fn new(
        tlb: &'static F,
        backend: &'static str,
        init: fn(Config) -> Result<(), InitError>,
        on_flush_interrupt: extern "C" fn(),
    ) -> Self {
        Self {
            tlb,
            backend,
            config: |_| config(),
            init,
            on_flush_interrupt,
            skip: None,
            work: |machine, backend, options, _| run(machine, backend, options),
            extras: Extras::default(),
        }
    }

    /// Runs the workloads on as many CPUs as the command line says, prints the report, and ends the run.
    ///
    /// # Panics
    /// When the flusher refuses to be set up, or frames leaked.
    pub fn run(&self) -> ! {
        let Self { tlb, backend, .. } = *self;
        let extras = self.extras;
        let own_word = extras.instead.map_or("", |instead| instead.word);
        let options = options(own_word);
        if options.skipped.is_some() && self.skip.is_none() {
            println!("{backend} does not execute the instruction that is to be skipped");
            exit(Exit::Usage)
        }
        let available = smp::available();
        let cpus = options.cpus.unwrap_or(available).clamp(1, available);
        (self.init)((self.config)(cpus)).expect("the configuration suits this machine");
        traps::set_fast_handler::<FLUSH_VECTOR>(self.on_flush_interrupt);
        let cpus = smp::start(Some(cpus));
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
        match (options.skipped, self.skip) {
            (Some(instruction), Some(skip)) => {
                println!("{instruction:?} is skipped: stale reads must show");
                skip(instruction);
            }
            _ if options.break_flush => {
                println!("the invalidation instructions are skipped: stale reads must show");
                skip_invalidations(true);
                host::skip_flushes(true);
            }
            _ => {}
        }
        let mut phases = PhaseList::default();
        let stale_before = (extras.workload)();
        let mut outcome = (self.work)(&Pc(tlb), backend, &options, &mut phases);
        skip_invalidations(false);
        host::skip_flushes(false);
        assert_eq!(frames::available(), before, "frames leaked");
        if !phases.all().is_empty() {
            println!("{}", Phases(phases.all()));
        }
        outcome.report.stale += stale_before;
        finish(&options, &outcome, phases.all(), extras.report)
    }
}

fn options(own_word: &'static str) -> Options {
    match Options::parse_but_for(cmdline::get(), own_word) {
        Ok(options) => options,
        Err(error) => {
            println!("{error}");
            exit(Exit::Usage)
        }
    }
}

/// Prints the report and ends the run.
fn finish(options: &Options, outcome: &Outcome, phases: &[Phase], report: fn()) -> ! {
    println!("{}", outcome.report.table());
    println!("{}", outcome.report.json_with(phases));
    report();
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
