//! Runs a child process with a time limit and collects what it prints.

mod output;

use crate::ended::Ended;
use crate::machine::APT_PACKAGES;
use output::{Chunk, Output, Stream, forward};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wait_timeout::ChildExt;

/// How long output is awaited from processes that outlive the one that was started.
const GRACE: Duration = Duration::from_millis(500);

/// Which processes the time limit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The child and all it starts, in a process group of their own.
    Own,
    /// The child alone; it stays in the caller's process group.
    Shared,
}

/// A process that ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub ended: Ended,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// Standard output and standard error, in the order of arrival.
    pub transcript: String,
    /// How long it ran.
    pub took: Duration,
}

impl Finished {
    /// Whether it ended with status 0.
    pub fn succeeded(&self) -> bool {
        self.ended == Ended::Status(0)
    }

    /// The last `count` lines of the transcript, indented.
    pub fn last_lines(&self, count: usize) -> String {
        last_lines(&self.transcript, count)
    }
}

/// The last `count` lines of `text`, indented.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    lines[from..]
        .iter()
        .map(|line| format!("    {}\n", line.trim_end()))
        .collect()
}

/// A process that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no such program.
    #[error("`{program}` was not found{}", hint(.program))]
    NotFound {
        /// Its name.
        program: String,
    },
    /// The operating system refused.
    #[error("`{program}` could not be run: {error}")]
    Refused {
        /// Its name.
        program: String,
        /// Why.
        error: std::io::Error,
    },
}

fn hint(program: &str) -> String {
    if program.contains("qemu") {
        format!(
            "; install it with: apt-get install -y --no-install-recommends {}",
            APT_PACKAGES.join(" ")
        )
    } else {
        String::new()
    }
}

/// Runs `command` for at most `limit`. `on_line` gets each line as it arrives.
///
/// # Errors
/// If the process can't be started.
pub fn run(
    command: &mut Command,
    limit: Duration,
    group: Group,
    on_line: &mut dyn FnMut(&str),
) -> Result<Finished, LaunchError> {
    let started = Instant::now();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if group == Group::Own {
        command.process_group(0);
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let refused = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => LaunchError::NotFound {
            program: program.clone(),
        },
        _ => LaunchError::Refused {
            program: program.clone(),
            error,
        },
    };
    let mut child = command.spawn().map_err(refused)?;
    let live = (group == Group::Own).then(|| LiveGroup::of(&child));

    let (sender, receiver) = channel();
    forward(child.stdout.take(), Stream::Stdout, sender.clone());
    forward(child.stderr.take(), Stream::Stderr, sender);
    let mut output = Output::default();
    collect(&receiver, &mut child, started + limit, &mut output, on_line);
    let remaining = (started + limit).saturating_duration_since(Instant::now());
    let ended = match child.wait_timeout(remaining).map_err(refused)? {
        Some(status) => ended(status),
        None => {
            match &live {
                Some(live) => live.kill(),
                // The child may have ended meanwhile, which is as good.
                None => drop(child.kill()),
            }
            child.wait().map_err(refused)?;
            Ended::TimedOut(limit)
        }
    };
    // What was printed just before a kill still stands in the pipes.
    while let Ok(chunk) = receiver.recv_timeout(GRACE) {
        output.take(&chunk, on_line);
    }
    Ok(output.finish(ended, started.elapsed(), on_line))
}

/// Kills every process group that [`run`] started and that still runs: for an interrupted program.
pub fn kill_live_groups() {
    for pid in LIVE_GROUPS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
    {
        // A group that ended meanwhile needs no kill.
        let _ = kill_process_group(*pid, Signal::KILL);
    }
}

static LIVE_GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

struct LiveGroup(Pid);

impl LiveGroup {
    fn of(child: &Child) -> Self {
        let pid = Pid::from_child(child);
        LIVE_GROUPS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(pid);
        LiveGroup(pid)
    }

    fn kill(&self) {
        // A group that ended meanwhile needs no kill.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

impl Drop for LiveGroup {
    fn drop(&mut self) {
        LIVE_GROUPS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|pid| *pid != self.0);
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Status(code),
        (None, signal) => Ended::Signal(signal.unwrap_or_default()),
    }
}

/// Takes output until both pipes are closed, the deadline passes, or the child is gone and all is quiet.
fn collect(
    receiver: &Receiver<Chunk>,
    child: &mut Child,
    deadline: Instant,
    output: &mut Output,
    on_line: &mut dyn FnMut(&str),
) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left.min(GRACE)) {
            Ok(chunk) => output.take(&chunk, on_line),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) if matches!(child.try_wait(), Ok(Some(_))) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= deadline {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
