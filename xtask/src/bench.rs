//! `cargo xtask bench`.

mod figure;
mod table;

use crate::failure::Failure;
use crate::install::{self, Needs};
use crate::kernels::{self, Kernel};
use crate::progress::Progress;
use crate::{build, readme, tool};
use figure::Figure;
use qemu_test_runner::ended::Report;
use qemu_test_runner::machine::{Arch, Machine};
use qemu_test_runner::process::{self, Group};
use std::process::ExitCode;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only this architecture.
    #[arg(long)]
    arch: Option<Arch>,
    /// Print one JSON object per figure and line, and nothing else.
    #[arg(long)]
    json: bool,
    /// Measure twice, and fail if a figure differs.
    #[arg(long)]
    check: bool,
    /// Put the tables into the README.
    #[arg(long, conflicts_with_all = ["arch", "json"])]
    write: bool,
}

/// Boots the benchmark kernels with QEMU counting instructions, and prints what each backend costs beside the bare floor.
///
/// # Errors
/// If something can't be installed, a kernel does not build or does not end well, or two runs differ.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let kernels = || {
        kernels::BENCHMARKS
            .iter()
            .filter(|kernel| options.arch.is_none_or(|arch| arch == kernel.arch))
    };
    install::install(&Needs::to_boot_kernels(kernels()))?;
    let mut figures = Vec::new();
    for kernel in kernels() {
        let measured = measure(kernel)?;
        if options.check {
            let again = measure(kernel)?;
            if let Some((one, other)) = measured.iter().zip(&again).find(|(a, b)| a != b) {
                return Err(Failure::Output {
                    command: format!("bench {}", kernel.arch),
                    reason: format!("two runs differ:\n{}\n{}", one.json(), other.json()),
                });
            }
        }
        figures.extend(measured);
    }
    if options.json {
        for figure in &figures {
            println!("{}", figure.json());
        }
    } else {
        println!("{}", table::render(&figures));
    }
    if options.write {
        readme::write(
            "bench",
            &format!("```text\n{}\n```", table::render(&figures)),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The machine that counts instructions: its clock goes on by one an instruction, summed over all CPUs.
fn machine(arch: Arch) -> Machine {
    Machine {
        cpu: match arch {
            // An access to an x2APIC's registers can't be counted.
            Arch::X86_64 => "max,-x2apic".into(),
            Arch::Aarch64 => "max".into(),
        },
        extra: ["-icount", "shift=0,sleep=off"].map(Into::into).to_vec(),
        ..Machine::new(arch)
    }
}

fn measure(kernel: &Kernel) -> Result<Vec<Figure>, Failure> {
    let elf = build::kernel(kernel, false)?;
    let machine = machine(kernel.arch);
    let words = kernel.words(machine.cpus, false);
    let mut progress = Progress::begin(format!("measuring {}", kernel.arch));
    let mut command = machine.command(&elf, &words);
    let finished = process::run(
        &mut command,
        kernels::TIME_LIMIT,
        Group::Shared,
        &mut |line| progress.line(line),
    );
    progress.end();
    let finished = finished?;
    if Report::of(kernel.arch, finished.ended) != Report::Passed {
        return Err(Failure::Tool {
            command: machine.shell_line(&elf, &words),
            ended: finished.ended,
            last_lines: finished.last_lines(tool::LAST_LINES),
        });
    }
    figure::find(&finished.stdout).map_err(|reason| Failure::Output {
        command: machine.shell_line(&elf, &words),
        reason,
    })
}
