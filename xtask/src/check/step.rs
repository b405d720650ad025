//! A step of the check: what it runs and what it counts as.

use crate::tool::Tool;
use qemu_test_runner::machine::Arch;
use std::time::Duration;

/// A step.
#[derive(Debug)]
pub struct Step {
    /// What it checks.
    pub name: String,
    /// What it runs.
    pub work: Work,
    /// What it counts as.
    pub counting: Counting,
    /// The CPU model without which it is skipped.
    pub model: Option<(Arch, String)>,
    /// The exit status by which the tool says that it could not do its work, for the reason in its last line.
    pub skip_status: Option<u8>,
}

/// What a step runs.
#[derive(Debug)]
pub enum Work {
    /// A tool, which must succeed.
    Tool(Tool),
    /// A tool that lists the files of the package, which must be the right ones.
    PackageContents(Tool),
}

/// What a step counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// One.
    Step,
    /// The tests that it runs.
    Tests,
}

/// A step that runs a tool for at most so many minutes; `line` is split at blanks.
pub fn step(name: &str, minutes: u64, line: &str) -> Step {
    let work = Work::Tool(Tool::new(line, Duration::from_secs(60 * minutes)));
    Step {
        name: name.into(),
        work,
        counting: Counting::Step,
        model: None,
        skip_status: None,
    }
}

impl Step {
    /// Counts the tests that it runs.
    pub fn tests(self) -> Self {
        Step {
            counting: Counting::Tests,
            ..self
        }
    }

    /// Is skipped, not failed, if it exits with this status.
    pub fn may_skip(self, status: u8) -> Self {
        Step {
            skip_status: Some(status),
            ..self
        }
    }

    /// Judges the list of files that it prints.
    pub fn package_contents(self) -> Self {
        let work = match self.work {
            Work::Tool(tool) | Work::PackageContents(tool) => Work::PackageContents(tool),
        };
        Step { work, ..self }
    }

    /// Adds an argument that may hold blanks.
    pub fn arg(self, argument: String) -> Self {
        self.change(|tool| tool.arg(argument))
    }

    /// Sets a variable.
    pub fn env(self, name: &str, value: &str) -> Self {
        self.change(|tool| tool.env(name, value))
    }

    fn change(self, change: impl FnOnce(Tool) -> Tool) -> Self {
        let work = match self.work {
            Work::Tool(tool) => Work::Tool(change(tool)),
            Work::PackageContents(tool) => Work::PackageContents(change(tool)),
        };
        Step { work, ..self }
    }
}
