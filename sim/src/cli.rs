//! The command line.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};
use shootdown::{coverage::Branch, variant::Broken};
use shootdown_sim::{
    BackendKind,
    campaign::{Plan, Summary, campaign, never_happened, never_taken},
    hunt::{Bag, LIMIT, SEEDS, hunt},
    replay, run as run_spec,
    shrink::shrink,
    variants,
};

/// Runs shootdown's flushers on a simulated machine and judges every translation they let a CPU use.
#[derive(Debug, Parser)]
#[command(name = "sim", args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    runs: Runs,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Counts, for each broken variant, the runs until it is caught; prints a table.
    Hunt {
        /// The flusher: ipi, concurrent_ipi, invlpgb, kvm_pv, hyperv, broadcast, local or active_cpu.
        #[arg(long, value_parser = backend)]
        backend: BackendKind,
        /// Only this variant.
        #[arg(long, value_parser = variant)]
        variant: Option<Broken>,
        /// How many hunts a variant.
        #[arg(long, default_value_t = SEEDS)]
        seeds: u64,
        /// A hunt gives up after so many runs.
        #[arg(long, default_value_t = LIMIT)]
        limit: u64,
    },
    /// Hunts each variant that the simulator must catch, once, and stores a shrunk replay of it.
    Record {
        /// Where the replays go.
        #[arg(long, default_value = "sim/replays")]
        directory: PathBuf,
        /// Only this variant.
        #[arg(long, value_parser = variant)]
        variant: Option<Broken>,
    },
}

#[derive(Debug, Args)]
struct Runs {
    /// The flusher: ipi, concurrent_ipi, invlpgb, kvm_pv, hyperv, broadcast, local or active_cpu.
    #[arg(long, value_parser = backend, default_value = "concurrent_ipi")]
    backend: BackendKind,
    /// How many CPUs; 2 to 8, or to 16 for invlpgb, by the seed, if not given.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16))]
    cpus: Option<u8>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many runs.
    #[arg(long, default_value_t = 10_000)]
    runs: u64,
    /// Prints the trace of the run; with one run even if it keeps the contract.
    #[arg(long)]
    trace: bool,
    /// Breaks the protocol in this way.
    #[arg(long, value_parser = variant)]
    broken: Option<Broken>,
    /// Runs what a replay file says.
    #[arg(long)]
    replay: Option<PathBuf>,
}

fn backend(name: &str) -> Result<BackendKind, String> {
    let names = BackendKind::ALL.map(BackendKind::name);
    BackendKind::from_name(name).ok_or_else(|| format!("there are {}", names.join(", ")))
}

fn variant(name: &str) -> Result<Broken, String> {
    let all = || {
        variants::VARIANTS
            .iter()
            .map(|(variant, _)| format!("{variant:?}"))
            .collect::<Vec<_>>()
    };
    variants::by_name(name).ok_or_else(|| format!("there are {}", all().join(", ")))
}

/// Does what the command line says.
pub fn run() -> ExitCode {
    let options = Options::parse();
    let good = match options.task {
        Some(Task::Hunt {
            backend,
            variant,
            seeds,
            limit,
        }) => hunt_all(backend, variant, seeds.max(1), limit),
        Some(Task::Record { directory, variant }) => record(&directory, variant),
        None => match options.runs.replay {
            Some(ref file) => replay_file(file),
            None => run_many(&options.runs),
        },
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run_many(options: &Runs) -> bool {
    let plan = Plan {
        backend: options.backend,
        cpus: options.cpus.map(usize::from),
        seed: options.seed,
        runs: options.runs,
        broken: options.broken,
    };
    if options.trace && options.runs == 1 {
        let mut spec = plan.spec(plan.seed);
        spec.trace = true;
        println!("{}", run_spec(&spec).trace.unwrap_or_default());
    }
    let portion = (plan.runs / 20).max(1);
    let summary = campaign(&plan, |runs| {
        if runs / portion != (runs + 16) / portion {
            eprintln!("{}: {runs} of {} runs", plan.backend.name(), plan.runs);
        }
    });
    print_summary(&plan, &summary);
    if let Some((spec, failure)) = &summary.failure {
        println!(
            "\nVIOLATION in seed {} with {} CPUs: {}",
            spec.seed, spec.cpus, failure.message
        );
        let shrunk = shrink(spec, failure);
        let mut again = shrunk.spec.clone();
        again.trace = true;
        println!("\nShrunk: {}\n", shrunk.message);
        println!("{}", run_spec(&again).trace.unwrap_or_default());
        println!(
            "Replay with --replay FILE, where the file holds:\n{}",
            replay::print(&shrunk.spec, &shrunk.message)
        );
        return false;
    }
    // A few runs can't be held to have done everything.
    let missing = never_taken(plan.backend, &summary.coverage);
    let idle = never_happened(plan.backend, &summary.tally);
    if (!missing.is_empty() || !idle.is_empty()) && plan.broken.is_none() {
        println!("\nNever taken: {missing:?}, never happened: {idle:?}");
        return plan.runs < 1000;
    }
    true
}

fn print_summary(plan: &Plan, summary: &Summary) {
    let seconds = summary.time.as_secs_f64();
    println!(
        "{}: {} runs from seed {} in {seconds:.1} s ({:.0} a second), at least {} flushes a run",
        plan.backend.name(),
        summary.runs,
        plan.seed,
        summary.runs as f64 / seconds,
        summary.least_flushes.unwrap_or(0),
    );
    println!("\n| on the machine | count |\n|---|---|");
    for (name, count) in summary.tally.rows() {
        println!("| {name} | {count} |");
    }
    println!("\n| branch of the protocol | count |\n|---|---|");
    for branch in Branch::ALL
        .iter()
        .filter(|branch| plan.backend.can_take(**branch))
    {
        println!(
            "| {branch:?} | {} |",
            summary.coverage.get(branch).unwrap_or(&0)
        );
    }
}

fn replay_file(file: &Path) -> bool {
    let spec = fs::read_to_string(file)
        .map_err(|error| error.to_string())
        .and_then(|text| replay::parse(&text));
    match spec {
        Ok(mut spec) => {
            spec.trace = true;
            let outcome = run_spec(&spec);
            println!("{}", outcome.trace.unwrap_or_default());
            match &outcome.failure {
                Some(failure) => println!("VIOLATION: {}", failure.message),
                None => println!("the contract is kept"),
            }
            outcome.failure.is_none()
        }
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            false
        }
    }
}

fn hunt_all(backend: BackendKind, only: Option<Broken>, seeds: u64, limit: u64) -> bool {
    println!(
        "| {} | median runs | least | most | caught |\n|---|---|---|---|---|",
        backend.name()
    );
    let mut good = true;
    for variant in variants::on(backend).filter(|variant| only.is_none_or(|only| only == *variant))
    {
        let bag = hunt(backend, variant, seeds, limit);
        println!("{}", row(&bag, seeds));
        good &= bag.median().is_some();
    }
    good
}

fn row(bag: &Bag, seeds: u64) -> String {
    let show = |runs: Option<u64>| runs.map_or(String::from("-"), |runs| runs.to_string());
    let caught = bag.runs.iter().flatten().count();
    let least = bag.runs.first().copied().flatten();
    let most = bag.runs.last().copied().flatten();
    format!(
        "| {:?} | {} | {} | {} | {caught}/{seeds} |",
        bag.variant,
        show(bag.median()),
        show(least),
        show(most)
    )
}

fn record(directory: &Path, only: Option<Broken>) -> bool {
    let mut good = true;
    for (variant, caught) in variants::VARIANTS {
        let variants::Caught::Simulator(backends) = caught else {
            continue;
        };
        if only.is_some_and(|only| only != *variant) {
            continue;
        }
        let file = directory.join(format!("{variant:?}.replay"));
        let written = store_replay(backends, *variant, &file);
        match written {
            Ok(()) => println!("{}", file.display()),
            Err(error) => {
                eprintln!("{variant:?}: {error}");
                good = false;
            }
        }
    }
    good
}

/// Stores the smallest of a few shrunk replays.
fn store_replay(backends: &[BackendKind], variant: Broken, file: &Path) -> Result<(), String> {
    let mut best: Option<(usize, String)> = None;
    for backend in backends {
        for number in 0..3 {
            let plan = Plan {
                backend: *backend,
                cpus: Some(2 + number as usize),
                seed: number * 1_000_003,
                runs: LIMIT,
                broken: Some(variant),
            };
            let Some((spec, failure)) = campaign(&plan, |_| {}).failure else {
                continue;
            };
            let shrunk = shrink(&spec, &failure);
            let mut mended = shrunk.spec.clone();
            mended.broken = None;
            if let Some(failure) = run_spec(&mended).failure {
                return Err(format!(
                    "the replay fails without the variant too: {}",
                    failure.message
                ));
            }
            let text = replay::print(&shrunk.spec, &shrunk.message);
            let size = text.len();
            if best.as_ref().is_none_or(|(least, _)| size < *least) {
                best = Some((size, text));
            }
        }
        if best.is_some() {
            break;
        }
    }
    let (_, text) = best.ok_or("not caught")?;
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}
