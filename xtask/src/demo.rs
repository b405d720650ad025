//! `cargo xtask demo`.

mod counts;
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
    /// Skip the invalidation instruction: succeeds only if every kernel notices stale reads.
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
        let row = boot(kernel, options)?;
        if let Err(reason) = &row.verdict {
            eprintln!("{} {}: {reason}", kernel.arch, kernel.backend);
        }
        if let (true, Some(counts)) = (options.json, &row.counts) {
            println!("{}", counts.line);
        }
        rows.push(row);
    }
    if !options.json {
        println!("{}", table::render(&rows));
        println!("{}", table::conclusion(&rows, options.break_flush));
    }
    let failed = rows.iter().any(|row| row.verdict.is_err());
    if options.write && !failed {
        let [text, conclusion] = [table::render(&rows), table::conclusion(&rows, false)];
        readme::write("demo", &format!("```text\n{text}\n{conclusion}\n```"))?;
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn boot(kernel: &'static Kernel, options: &Options) -> Result<Row, Failure> {
    let elf = build::kernel(kernel, options.break_flush)?;
    let machine = kernel.machine(options.cpus);
    let words = kernel.words(options.cpus, options.break_flush);
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
    let counts = counts::find(kernel, options.cpus, &finished.stdout);
    let report = Report::of(kernel.arch, finished.ended);
    let verdict = verdict::judge(report, &counts, options.break_flush).map_err(|reason| {
        let line = machine.shell_line(&elf, &words);
        format!(
            "{reason}\n  booted with: {line}\n  its last output:\n{}",
            finished.last_lines(tool::LAST_LINES)
        )
    });
    Ok(Row {
        kernel,
        counts: counts.ok(),
        report,
        verdict,
        took: finished.took,
    })
}
