//! `cargo xtask`: builds, boots and checks everything around the crate.

mod bench;
mod build;
mod check;
mod demo;
mod failure;
mod images;
mod install;
mod kernels;
mod progress;
mod project;
mod readme;
mod sim;
mod tool;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Builds, boots and checks the crate. Each command first installs what is missing.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Boots the example kernels under QEMU and prints what they did.
    Demo(demo::Options),
    /// Counts the instructions of flushes and switches under QEMU, beside what they would cost without a protocol.
    Bench(bench::Options),
    /// Writes a bootable ELF file per example kernel and prints the QEMU line for each.
    Images(images::Options),
    /// Runs the simulated machine; all arguments go to the simulator.
    Sim(sim::Options),
    /// Checks everything: format, lints, documentation, tests on the host and on the target.
    Test(check::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Task::Demo(options) => demo::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Images(options) => images::run(&options),
        Task::Sim(options) => sim::run(&options),
        Task::Test(options) => check::run(&options),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}
