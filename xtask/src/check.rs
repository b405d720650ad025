//! `cargo xtask test`: everything that must hold, step by step, each with a time limit.

mod libtest;
mod models;
mod package;
mod step;
mod steps;
mod tally;

use crate::failure::Failure;
use crate::install::{self, Needs};
use crate::progress::Progress;
use crate::tool::LAST_LINES;
use models::Models;
use qemu_test_runner::ended::Ended;
use qemu_test_runner::process::{self, Finished, Group, last_lines};
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::time::Instant;
use step::{Counting, Step, Work};
use tally::{Outcome, Tally};

/// What to check.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only steps whose name contains this text; the others count as skipped.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Seed of the simulator's random runs, instead of a new one.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs all steps, goes on after a failed one, and sums up.
///
/// # Errors
/// If something is missing and can't be installed.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    // The steps run in process groups of their own, which an interrupt of this program does not reach.
    let handler = ctrlc::set_handler(|| {
        process::kill_live_groups();
        std::process::exit(130);
    });
    handler.map_err(|error| Failure::Setup(format!("signals can't be handled: {error}")))?;
    install::install(&Needs::everything())?;
    let models = Models::of_installed();
    println!("QEMU: {}", models.versions());
    // Far from the end of the numbers: runs count their seeds up from it.
    let seed = options
        .seed
        .unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    println!("random seed: {seed} (again with --seed {seed})");

    let steps = steps::all(seed);
    let mut tally = Tally::default();
    for (index, step) in steps.iter().enumerate() {
        let began = Instant::now();
        let outcome = match skip_reason(step, options, &models) {
            Some(reason) => Outcome::skipped(reason),
            None => run_step(
                step,
                &format!("[{}/{}] {}", index + 1, steps.len(), step.name),
            ),
        };
        println!("{}", outcome.describe(&step.name, began.elapsed()));
        tally.add(&step.name, outcome);
    }
    print!("{}", tally.summary());
    Ok(if tally.has_failed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn skip_reason(step: &Step, options: &Options, models: &Models) -> Option<String> {
    if options
        .only
        .as_ref()
        .is_some_and(|text| !step.name.contains(text))
    {
        return Some("not asked for".into());
    }
    let (arch, model) = step.model.as_ref()?;
    (!models.has(*arch, model)).then(|| format!("this QEMU does not know the CPU model {model}"))
}

fn run_step(step: &Step, label: &str) -> Outcome {
    let tool = match &step.work {
        Work::Tool(tool) => tool,
        Work::PackageContents(tool) => tool,
    };
    let mut progress = Progress::begin(label);
    let finished = tool.run(Group::Own, &mut progress);
    progress.end();
    let finished = match finished {
        Ok(finished) => finished,
        Err(failure) => return Outcome::failed(failure.to_string()),
    };
    let details = |reason: &str| {
        let said = match step.counting {
            Counting::Tests => libtest::failures(&finished.transcript),
            Counting::Step => String::new(),
        };
        let said = if said.is_empty() {
            finished.last_lines(LAST_LINES)
        } else {
            said
        };
        format!("{reason}\n  command: {}\n{said}", tool.line())
    };
    if let Some(status) = step.skip_status
        && finished.ended == Ended::Status(status.into())
    {
        let reason = finished.stdout.lines().last().unwrap_or("no reason given");
        let reason = reason.strip_prefix("skipped: ").unwrap_or(reason);
        return Outcome::skipped(reason.to_string());
    }
    match step.counting {
        Counting::Tests => libtest::outcome(&finished, details),
        Counting::Step if !finished.succeeded() => {
            Outcome::failed(details(&finished.ended.to_string()))
        }
        Counting::Step => match &step.work {
            Work::Tool(_) => Outcome::passed(),
            Work::PackageContents(_) => contents(&finished),
        },
    }
}

fn contents(finished: &Finished) -> Outcome {
    match package::judge(&finished.stdout) {
        Ok(()) => Outcome::passed(),
        Err(reason) => Outcome::failed(format!(
            "{reason}\n{}",
            last_lines(&finished.stdout, LAST_LINES)
        )),
    }
}
