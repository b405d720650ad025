//! Runs tools: progress while they run, their last lines if they fail.

use crate::failure::Failure;
use crate::progress::Progress;
use crate::project;
use qemu_test_runner::process::{self, Finished, Group};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How much of a failed tool's output is shown.
pub const LAST_LINES: usize = 40;

/// A tool to run, at the root of the project unless told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables set for it.
    pub environment: Vec<(String, String)>,
    /// How long it may take.
    pub limit: Duration,
    /// Where it runs.
    pub directory: PathBuf,
}

impl Tool {
    /// `line` is the program and its arguments, separated by blanks.
    pub fn new(line: &str, limit: Duration) -> Self {
        let mut words = line.split_whitespace().map(str::to_string);
        let program = words.next().unwrap_or_default();
        Tool {
            program,
            arguments: words.collect(),
            environment: Vec::new(),
            limit,
            directory: project::root().into(),
        }
    }

    /// Runs it elsewhere.
    pub fn within(self, directory: &Path) -> Self {
        Tool {
            directory: directory.into(),
            ..self
        }
    }

    /// Adds an argument that may hold blanks.
    pub fn arg(mut self, argument: String) -> Self {
        self.arguments.push(argument);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Its command line as one would type it.
    pub fn line(&self) -> String {
        let mut line = String::new();
        for (name, value) in &self.environment {
            line += &format!("{name}={} ", shell_words::quote(value));
        }
        line += &shell_words::join(std::iter::once(&self.program).chain(&self.arguments));
        line
    }

    /// Runs it, whatever comes of it.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn run(&self, group: Group, progress: &mut Progress) -> Result<Finished, Failure> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.directory);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(process::run(
            &mut command,
            self.limit,
            group,
            &mut |line| progress.line(line),
        )?)
    }

    /// Runs it; what it wrote to standard output.
    ///
    /// # Errors
    /// If it can't be started or fails.
    pub fn output(&self, progress: &mut Progress) -> Result<String, Failure> {
        let finished = self.run(Group::Shared, progress)?;
        if finished.succeeded() {
            return Ok(finished.stdout);
        }
        Err(self.failure(&finished))
    }

    /// The failure of a run.
    pub fn failure(&self, finished: &Finished) -> Failure {
        let last_lines = finished.last_lines(LAST_LINES);
        Failure::Tool {
            command: self.line(),
            ended: finished.ended,
            last_lines,
        }
    }

    /// Runs it without progress; what it wrote to standard output, if it is there and succeeds.
    pub fn quiet_output(&self) -> Option<String> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.directory);
        let finished = process::run(&mut command, self.limit, Group::Shared, &mut |_| {}).ok()?;
        finished.succeeded().then_some(finished.stdout)
    }

    /// Whether it is there and succeeds.
    pub fn succeeds(&self) -> bool {
        self.quiet_output().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::Tool;
    use crate::failure::Failure;
    use crate::progress::Progress;
    use std::time::Duration;

    #[test]
    fn the_line_can_be_typed_again() {
        let tool = Tool::new("cargo test -p a", Duration::from_secs(1))
            .env("RUSTFLAGS", "--cfg loom")
            .env("A", "b");
        assert_eq!(tool.line(), "RUSTFLAGS='--cfg loom' A=b cargo test -p a");
    }

    #[test]
    fn a_failure_shows_the_command_and_its_last_lines() {
        let tool = Tool::new("ls --no-such-option", Duration::from_secs(20));
        let failure = tool
            .output(&mut Progress::begin("ls"))
            .expect_err("ls refuses");
        assert!(
            matches!(&failure, Failure::Tool { last_lines, .. } if last_lines.contains("no-such-option"))
        );
        assert!(
            failure
                .to_string()
                .starts_with("`ls --no-such-option` failed: exit status 2")
        );
        assert!(!tool.succeeds());
    }
}
