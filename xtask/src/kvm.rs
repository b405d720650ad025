//! `cargo xtask test-kvm`: the paravirtual kernels as guests of a real KVM.
//!
//! Where this machine has none that is fit for it, QEMU emulates one with SVM, a stock Linux runs on that, and the
//! guests run under its KVM.

mod boots;
mod emulated;
mod initramfs;
mod packages;
mod place;
mod transcript;
mod verdict;

use crate::failure::Failure;
use crate::install::{self, Needs};
use crate::kernels::{self, Kernel};
use crate::progress::Progress;
use crate::tool::{LAST_LINES, Tool};
use crate::{build, project};
use boots::{BOOTS, Boot};
use packages::Linux;
use place::{Machine, Place, TRACING};
use qemu_test_runner::process::{self, Finished, Group};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use verdict::Verdict;

/// How to test.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print all that the guests and the tracepoints say.
    #[arg(long)]
    verbose: bool,
    /// Only boots whose name contains this text: for looking into one, and no pass of the whole.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// The exit status of a test that could be run, but showed neither.
pub const INCONCLUSIVE: u8 = 3;
/// The exit status of a test that could not be run.
pub const SKIPPED: u8 = 77;

/// How long all guests together may take, the start of the emulated machine included.
const LIMIT: Duration = Duration::from_secs(360);
/// How often an inconclusive boot is tried.
const ATTEMPTS: u32 = 3;

/// Where guests can be run.
enum Runner {
    Here,
    Emulated(Linux),
}

/// Runs the guests, again where they are inconclusive, and says what they showed.
///
/// # Errors
/// If a kernel does not build, or QEMU can't be run.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let directory = project::target().join("test-kvm");
    std::fs::create_dir_all(&directory).map_err(Failure::file(&directory))?;
    let mut waiting: Vec<_> = BOOTS
        .iter()
        .filter(|boot| {
            let only = options.only.as_ref();
            only.is_none_or(|text| boot.name.contains(text.as_str()))
        })
        .collect();
    let kernels = kernels_of(&waiting)?;
    install::install(&Needs::to_boot_kernels(kernels.iter().copied()))?;
    let runner = match Machine::look().place() {
        Place::Here => Runner::Here,
        Place::Emulated(reason) => {
            println!("KVM runs in an emulated machine: {reason}");
            match Linux::get(&directory) {
                Ok(linux) => Runner::Emulated(linux),
                Err(reason) => {
                    eprintln!("{reason}");
                    println!(
                        "skipped: a Linux with KVM can't be had: {}",
                        last_line(&reason)
                    );
                    return Ok(ExitCode::from(SKIPPED));
                }
            }
        }
    };
    let elfs = kernels
        .iter()
        .map(|kernel| build::kernel(kernel, false))
        .collect::<Result<Vec<_>, _>>()?;

    let (mut failed, mut inconclusive) = (false, Vec::new());
    for attempt in 1..=ATTEMPTS {
        let finished = runner.run(&directory, &waiting, &elfs)?;
        if options.verbose {
            println!("{}", finished.stdout);
        }
        let guests = transcript::read(&finished.stdout);
        inconclusive.clear();
        for boot in &waiting {
            let kernel = kernels::named(boot.kernel)?;
            let guest = guests.iter().find(|guest| guest.name == boot.name);
            let verdict = match guest {
                Some(guest) => verdict::judge(boot, kernel, guest),
                None => Verdict::Inconclusive("it was not booted".into()),
            };
            println!("{}", describe(boot, &verdict, attempt));
            match (verdict, guest) {
                (Verdict::Passed(_), _) => {}
                (Verdict::Failed(_), guest) => {
                    failed = true;
                    let said = guest.map(|guest| guest.last_lines(LAST_LINES));
                    println!("  its last output:\n{}", said.unwrap_or_default());
                }
                (Verdict::Inconclusive(_), Some(guest)) => {
                    print!("{}", guest.errors_only());
                    inconclusive.push(*boot);
                }
                (Verdict::Inconclusive(_), None) => {
                    println!("  {}", finished.ended);
                    print!("{}", finished.last_lines(LAST_LINES));
                    inconclusive.push(*boot);
                }
            }
        }
        waiting.clone_from(&inconclusive);
        if waiting.is_empty() || failed {
            break;
        }
    }
    let (word, code) = match (failed, inconclusive.is_empty(), &options.only) {
        (true, ..) => ("FAILED", ExitCode::FAILURE),
        (false, false, _) => ("inconclusive", ExitCode::from(INCONCLUSIVE)),
        (false, true, None) => ("passed", ExitCode::SUCCESS),
        (false, true, Some(_)) => ("passed, as far as asked for", ExitCode::SUCCESS),
    };
    println!("test-kvm: {word}");
    Ok(code)
}

/// The last line that says something: where a tool says why it failed.
fn last_line(text: &str) -> &str {
    let mut lines = text.lines().rev().map(str::trim);
    lines
        .find(|line| !line.is_empty())
        .unwrap_or("no reason given")
}

fn describe(boot: &Boot, verdict: &Verdict, attempt: u32) -> String {
    let (word, text) = match verdict {
        Verdict::Passed(text) => ("ok", text),
        Verdict::Failed(text) => ("FAILED", text),
        Verdict::Inconclusive(text) => ("inconclusive", text),
    };
    let again = match attempt {
        1 => String::new(),
        _ => format!(" (attempt {attempt})"),
    };
    format!("{word:<13}{}{again}: {text}", boot.name)
}

/// The kernels of the boots, each once.
fn kernels_of(boots: &[&Boot]) -> Result<Vec<&'static Kernel>, Failure> {
    let mut kernels: Vec<&Kernel> = Vec::new();
    for boot in boots {
        let kernel = kernels::named(boot.kernel)?;
        if !kernels.iter().any(|it| it.backend == kernel.backend) {
            kernels.push(kernel);
        }
    }
    Ok(kernels)
}

impl Runner {
    fn run(
        &self,
        directory: &Path,
        boots: &[&Boot],
        elfs: &[PathBuf],
    ) -> Result<Finished, Failure> {
        let label = format!("running {} guests under KVM", boots.len());
        match self {
            Runner::Here => {
                let kernels = elfs.first().and_then(|elf| elf.parent());
                let work = directory.join("work");
                std::fs::create_dir_all(&work).map_err(Failure::file(&work))?;
                let kernels = kernels.unwrap_or(directory);
                let script = boots::script(boots, kernels, &work, TRACING);
                let path = directory.join("run.sh");
                std::fs::write(&path, script).map_err(Failure::file(&path))?;
                let mut progress = Progress::begin(label);
                let finished = Tool::new("sh", LIMIT)
                    .arg(path.display().to_string())
                    .run(Group::Own, &mut progress);
                progress.end();
                finished
            }
            Runner::Emulated(linux) => {
                let script =
                    boots::script(boots, Path::new("/kernels"), Path::new("/tmp"), TRACING);
                let image = directory.join("initramfs");
                initramfs::write(&image, linux, script, elfs)?;
                let console = directory.join("console.log");
                let mut command = emulated::command(linux, &image, &console);
                let mut progress = Progress::begin(label);
                let finished = process::run(&mut command, LIMIT, Group::Shared, &mut |line| {
                    progress.line(line);
                });
                progress.end();
                Ok(finished?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::last_line;

    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(
            last_line("`apt` failed:\n    E: no network  \n\n"),
            "E: no network"
        );
        assert_eq!(last_line(""), "no reason given");
    }
}
