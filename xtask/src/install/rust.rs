//! Rust targets and components.

use crate::failure::Failure;
use crate::progress::Progress;
use crate::tool::Tool;
use std::path::Path;
use std::time::Duration;

const DOWNLOAD: Duration = Duration::from_secs(600);
const QUERY: Duration = Duration::from_secs(60);

/// Those of `targets` that the toolchain has no standard library for.
pub fn missing_targets(targets: &[&'static str]) -> Vec<&'static str> {
    let sysroot = sysroot();
    let has = |target: &str| {
        sysroot
            .as_deref()
            .is_some_and(|sysroot| holds(Path::new(sysroot), target))
    };
    targets
        .iter()
        .copied()
        .filter(|target| !has(target))
        .collect()
}

/// Whether `cargo <command>` works.
pub fn has_command(command: &str) -> bool {
    Tool::new(&format!("cargo {command} --version"), QUERY).succeeds()
}

/// Adds targets and components to the active toolchain.
///
/// # Errors
/// If rustup is not there or fails: says what to run.
pub fn install(targets: &[&str], components: &[(&str, &str)]) -> Result<(), Failure> {
    let commands = commands(targets, components);
    if commands.is_empty() {
        return Ok(());
    }
    if !Tool::new("rustup --version", QUERY).succeeds() {
        let lines = commands.join(" && ");
        let message = format!(
            "the Rust toolchain is incomplete and has no rustup; with rustup one would run: {lines}"
        );
        return Err(Failure::Setup(message));
    }
    for command in commands {
        let mut progress = Progress::begin(format!("installing: {command}"));
        let outcome = Tool::new(&command, DOWNLOAD).output(&mut progress);
        progress.end();
        outcome?;
    }
    Ok(())
}

fn commands(targets: &[&str], components: &[(&str, &str)]) -> Vec<String> {
    let mut commands = Vec::new();
    if !targets.is_empty() {
        commands.push(format!("rustup target add {}", targets.join(" ")));
    }
    if !components.is_empty() {
        let names: Vec<_> = components.iter().map(|(_, component)| *component).collect();
        commands.push(format!("rustup component add {}", names.join(" ")));
    }
    commands
}

fn sysroot() -> Option<String> {
    let output = Tool::new("rustc --print sysroot", QUERY).quiet_output()?;
    Some(output.trim().to_string())
}

fn holds(sysroot: &Path, target: &str) -> bool {
    sysroot
        .join("lib/rustlib")
        .join(target)
        .join("lib")
        .is_dir()
}

#[cfg(test)]
mod tests {
    use super::{commands, holds, missing_targets};
    use std::path::Path;

    #[test]
    fn asks_rustup_for_what_is_missing_only() {
        assert_eq!(commands(&[], &[]), Vec::<String>::new());
        assert_eq!(commands(&["a", "b"], &[]), ["rustup target add a b"]);
        let both = commands(&["a"], &[("fmt", "rustfmt"), ("clippy", "clippy")]);
        assert_eq!(
            both,
            ["rustup target add a", "rustup component add rustfmt clippy"]
        );
    }

    #[test]
    fn finds_targets_in_the_toolchain() {
        assert!(!holds(Path::new("/nonexistent"), "x86_64-unknown-none"));
        assert_eq!(missing_targets(&["no-such-target"]), ["no-such-target"]);
    }
}
