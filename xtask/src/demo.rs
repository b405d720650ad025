//! `cargo xtask demo`.

pub mod counts;
mod phases;
mod table;
mod verdict;

use crate::failure::Failure;
use crate::install::{self, Needs};
use crate::kernels::{self, Kernel};
use crate::progress::Progress;
use crate::{build, readme, tool};
use qemu_test_runner::ended::Report;
use qemu_test_runner::machine::Arch;
use qemu_test_runner::process::{self, Group};
use std::process::ExitCode;
use table::Row;

/// What to boot.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only kernels of this architecture.
    #[arg(long)]
    arch: Option<Arch>,
    /// Only the kernels of this backend.
    #[arg(long)]
    backend: Option<String>,
    /// Number of CPUs.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// Skip the invalidation instructions, and where a kernel has several also each alone: succeeds only if every kernel
    /// notices stale reads.
    #[arg(long)]
    break_flush: bool,
    /// Print one JSON object per kernel and line, and nothing else.
    #[arg(long)]
    json: bool,
    /// Put the table into the README.
    #[arg(long, conflicts_with_all = ["arch", "backend", "break_flush", "json"])]
    write: bool,
}

/// Boots the kernels, prints what they did, and fails if one of them did not do what it should.
///
/// # Errors
/// If there is no such kernel, something can't be installed, or a kernel does not build.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let kernels = kernels::select(options.arch, options.backend.as_deref())?;
    install::install(&Needs::to_boot_kernels(kernels.iter().copied()))?;
    let mut rows = Vec::new();
    for kernel in kernels {
        let (as_it_is, broken) = ([None], kernel.breaks.iter().copied().map(Some));
        let boots: Vec<_> = if options.break_flush {
            broken.collect()
        } else {
            as_it_is.into()
        };
        for broken in boots {
            let row = boot(kernel, options, broken)?;
            if let Err(reason) = &row.verdict {
                eprintln!("{}: {reason}", row.name());
            }
            if let (true, Some(counts)) = (options.json, &row.counts) {
                println!("{}", counts.line);
            }
            rows.push(row);
        }
    }
    let shown = shown(&rows, options.break_flush);
    if !options.json {
        println!("{shown}");
    }
    let failed = rows.iter().any(|row| row.verdict.is_err());
    if options.write && !failed {
        readme::write("demo", &format!("```text\n{shown}\n```"))?;
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// What the demo prints at its end.
fn shown(rows: &[Row], broken: bool) -> String {
    let mut shown = table::render(rows);
    for phases in rows.iter().filter_map(phases::render) {
        shown += &format!("\n\n{phases}");
    }
    shown + &format!("\n{}", table::conclusion(rows, broken))
}

fn boot(
    kernel: &'static Kernel,
    options: &Options,
    broken: Option<&'static str>,
) -> Result<Row, Failure> {
    let elf = build::kernel(kernel, broken.is_some())?;
    let machine = kernel.machine(options.cpus);
    let words = kernel.words(options.cpus, broken);
    let mut progress = Progress::begin(format!(
        "booting {} {} on {} CPUs",
        kernel.arch, kernel.backend, options.cpus
    ));
    let mut command = machine.command(&elf, &words);
    let finished = process::run(
        &mut command,
        kernels::TIME_LIMIT,
        Group::Shared,
        &mut |line| progress.line(line),
    );
    progress.end();
    let finished = finished?;
    let counts =
        counts::find(kernel, options.cpus, &finished.stdout).and_then(|counts| {
            match counts.numbers.idle_guest().filter(|_| kernel.guest) {
                Some(reason) => Err(reason),
                None => Ok(counts),
            }
        });
    let report = Report::of(kernel.arch, finished.ended);
    let verdict = verdict::judge(report, &counts, broken).map_err(|reason| {
        let line = machine.shell_line(&elf, &words);
        format!(
            "{reason}\n  booted with: {line}\n  its last output:\n{}",
            finished.last_lines(tool::LAST_LINES)
        )
    });
    Ok(Row {
        kernel,
        broken,
        counts: counts.ok(),
        report,
        verdict,
        took: finished.took,
    })
}
