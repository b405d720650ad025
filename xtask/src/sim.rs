//! `cargo xtask sim`, and what else the simulator's package measures.

use crate::failure::Failure;
use crate::project;
use qemu_test_runner::process::LaunchError;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Arguments for the simulator.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Passed through; `--help` shows what there is.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<OsString>,
}

/// Runs the simulator on this terminal, until it ends or is interrupted.
///
/// # Errors
/// If cargo can't be started.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    program("sim", &options.arguments)
}

/// Measures in virtual time and writes the page under `docs/`.
///
/// # Errors
/// If cargo can't be started.
pub fn virtual_time() -> Result<ExitCode, Failure> {
    program("virtual-time", &[])
}

fn program(name: &str, arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--release"]);
    command.args(["--package", "shootdown-sim", "--bin", name, "--"]);
    command.args(arguments).current_dir(project::root());
    let status = command.status().map_err(|error| LaunchError::Refused {
        program: "cargo".into(),
        error,
    })?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
