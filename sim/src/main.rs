//! `sim`: runs the flushers on the simulated machine.

#[cfg(not(loom))]
mod cli;

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    cli::run()
}

/// loom explores the crate itself; the machine is not built then.
#[cfg(loom)]
fn main() {}
