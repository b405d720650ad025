//! `virtual-time`: measures the flushers in virtual time and writes the page that shows it.

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    use std::{path::PathBuf, process::ExitCode};

    use clap::Parser;

    /// Runs shootdown's flushers on simulated CPUs in virtual time, and writes charts and tables.
    #[derive(Debug, Parser)]
    struct Options {
        /// Where `virtual-time.md` and its charts go.
        #[arg(long, default_value = "docs")]
        directory: PathBuf,
    }

    let Options { directory } = Options::parse();
    let written =
        shootdown_sim::timed::page::write(&directory, &mut |what| eprintln!("measuring: {what}"));
    match written {
        Ok(()) => {
            println!("wrote {}", directory.join("virtual-time.md").display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

/// loom explores the crate itself; the machine is not built then.
#[cfg(loom)]
fn main() {}
