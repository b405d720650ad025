//! Why a command could not do its work.

use qemu_test_runner::ended::Ended;
use qemu_test_runner::process::LaunchError;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something must be installed, or asked for differently, first.
    #[error("{0}")]
    Setup(String),
    /// A tool could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A tool failed.
    #[error("`{command}` failed: {ended}; its last output:\n{last_lines}")]
    Tool {
        /// Its command line.
        command: String,
        /// How it ended.
        ended: Ended,
        /// The end of its output.
        last_lines: String,
    },
    /// A tool's output is not what it should be.
    #[error("`{command}`: {reason}")]
    Output {
        /// Its command line.
        command: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

impl Failure {
    /// For `map_err` on an operation on `path`.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
        let path = path.to_path_buf();
        move |error| Failure::File { path, error }
    }

    /// 2 if the user must do something first, else 1.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Setup(_) | Failure::Launch(_) => ExitCode::from(2),
            Failure::Tool { .. } | Failure::Output { .. } | Failure::File { .. } => {
                ExitCode::FAILURE
            }
        }
    }
}
