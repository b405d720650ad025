//! Runs the tests of an `embedded-test` binary, each in a boot of QEMU of its own.
//!
//! Usable as a runner of `cargo test`: `CARGO_TARGET_X86_64_UNKNOWN_NONE_RUNNER=qemu-test-runner`.

use clap::Parser;
use libtest_mimic::{Arguments, Failed, Trial};
use qemu_test_runner::elf_tests::{self, ElfTest};
use qemu_test_runner::machine::{Machine, Threading};
use qemu_test_runner::process::{self, Group};
use qemu_test_runner::verdict::judge;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Runs the tests of an embedded-test binary, each in a boot of QEMU of its own.
#[derive(Debug, Parser)]
struct Options {
    /// CPU model, with feature flags if wanted.
    #[arg(long, env = "QEMU_TEST_CPU", default_value = "max")]
    cpu: String,
    /// Number of CPUs.
    #[arg(long, env = "QEMU_TEST_SMP", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    smp: u32,
    /// Whether the CPUs share a host thread or have one each.
    #[arg(long, env = "QEMU_TEST_THREAD", default_value = "single")]
    thread: Threading,
    /// Options for `-M`, separated by commas, e.g. `virtualization=on`.
    #[arg(long, env = "QEMU_TEST_MACHINE")]
    machine: Option<String>,
    /// One more argument for QEMU; can be repeated (in the variable: separated by blanks).
    #[arg(
        long,
        env = "QEMU_TEST_ARGS",
        value_delimiter = ' ',
        allow_hyphen_values = true
    )]
    qemu_arg: Vec<String>,
    /// The emulator, instead of the one found in PATH.
    #[arg(long, env = "QEMU_TEST_PATH")]
    qemu: Option<PathBuf>,
    /// Time limit of a test without a `#[timeout]` of its own, in seconds.
    #[arg(long, env = "QEMU_TEST_TIME_LIMIT", default_value_t = 60)]
    time_limit: u64,
    /// The test binary.
    elf: PathBuf,
    /// Arguments as libtest takes them: a filter, `--test-threads`, `--list`, ...
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    libtest: Vec<OsString>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let libtest = std::iter::once("qemu-test-runner".into()).chain(options.libtest.iter().cloned());
    let libtest = Arguments::from_iter(libtest);
    match trials(options) {
        Ok(trials) => libtest_mimic::run(&libtest, trials).exit_code(),
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::from(2)
        }
    }
}

fn trials(options: Options) -> Result<Vec<Trial>, String> {
    let in_file = |reason: String| format!("{}: {reason}", options.elf.display());
    let data = std::fs::read(&options.elf).map_err(|error| in_file(error.to_string()))?;
    let (arch, tests) = elf_tests::read(&data).map_err(|error| in_file(error.to_string()))?;
    let mut machine = Machine::new(arch);
    machine.cpu = options.cpu;
    machine.cpus = options.smp;
    machine.threading = options.thread;
    machine.options = options.machine;
    machine.extra = options.qemu_arg;
    machine.qemu = options.qemu.unwrap_or(machine.qemu);
    let limit = Duration::from_secs(options.time_limit);
    let boot = Arc::new((machine, options.elf));
    Ok(tests
        .into_iter()
        .map(|test| {
            let boot = Arc::clone(&boot);
            let ignored = test.ignored;
            Trial::test(test.name.clone(), move || {
                run(&boot.0, &boot.1, &test, limit)
            })
            .with_ignored_flag(ignored)
        })
        .collect())
}

fn run(machine: &Machine, elf: &Path, test: &ElfTest, limit: Duration) -> Result<(), Failed> {
    let words = ["run_addr".to_string(), test.entry.to_string()];
    let limit = test.timeout.unwrap_or(limit);
    let finished = process::run(
        &mut machine.command(elf, &words),
        limit,
        Group::Shared,
        &mut |_| {},
    )?;
    judge(machine.arch, finished.ended, test.should_panic).map_err(|reason| {
        let line = machine.shell_line(elf, &words);
        format!(
            "{reason}\n  booted with: {line}\n  last output:\n{}",
            finished.last_lines(40)
        )
        .into()
    })
}
