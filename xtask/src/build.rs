//! Builds binaries with cargo and finds where they are.

use crate::failure::Failure;
use crate::kernels::Kernel;
use crate::progress::Progress;
use crate::tool::{LAST_LINES, Tool};
use qemu_test_runner::process::{Group, last_lines};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// How long a build may take, downloads included.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Builds a kernel in release mode; where its ELF file is. `break_flush`: one that can skip invalidations. What ships
/// can't.
///
/// # Errors
/// If it does not build.
pub fn kernel(kernel: &Kernel, break_flush: bool) -> Result<PathBuf, Failure> {
    let Kernel {
        arch,
        backend,
        package,
        ..
    } = kernel;
    let features = if break_flush {
        " --features break-flush"
    } else {
        ""
    };
    let line = format!(
        "cargo build --release --target {} --package {package} --bin {backend}{features}",
        arch.target()
    );
    let tool = Tool::new(
        &format!("{line} --message-format json-render-diagnostics"),
        TIME_LIMIT,
    );
    let mut progress = Progress::begin(format!("building {arch} {backend}"));
    let finished = tool.run(Group::Shared, &mut progress);
    progress.end();
    let finished = finished?;
    if !finished.succeeded() {
        // Standard output holds messages for programs.
        let last_lines = last_lines(&finished.stderr, LAST_LINES);
        return Err(Failure::Tool {
            command: line,
            ended: finished.ended,
            last_lines,
        });
    }
    let reason = format!("built no binary `{backend}`");
    executable(&finished.stdout, backend).ok_or(Failure::Output {
        command: tool.line(),
        reason,
    })
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// The executable of the target `name` in cargo's messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let artifacts = messages.filter(|message| message.reason == "compiler-artifact");
    artifacts
        .filter(|artifact| artifact.target.as_ref().is_some_and(|it| it.name == name))
        .find_map(|it| it.executable)
}

#[cfg(test)]
mod tests {
    use super::executable;
    use std::path::Path;

    #[test]
    fn finds_the_executable_among_the_artifacts() {
        let messages = r#"
            {"reason":"compiler-artifact","target":{"name":"ipi"},"executable":null}
            {"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/other"}
            {"reason":"build-script-executed","package_id":"x"}
            not JSON
            {"reason":"compiler-artifact","target":{"name":"ipi"},"executable":"/t/ipi"}
            {"reason":"build-finished","success":true}
        "#;
        assert_eq!(
            executable(messages, "ipi").as_deref(),
            Some(Path::new("/t/ipi"))
        );
        assert_eq!(executable(messages, "none"), None);
    }
}
