//! How a boot of a kernel ended.

use crate::machine::Arch;
use std::fmt;
use std::time::Duration;

/// How a child process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an exit status of its own.
    Status(i32),
    /// By a signal that this program did not send.
    Signal(i32),
    /// It was killed here, after the time limit.
    TimedOut(Duration),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Status(status) => write!(f, "exit status {status}"),
            Ended::Signal(signal) => write!(f, "killed by signal {signal}"),
            Ended::TimedOut(limit) => {
                write!(f, "no end within the time limit of {} s", limit.as_secs())
            }
        }
    }
}

/// What the kernel said about itself through QEMU's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// All went well.
    Passed,
    /// It panicked (or, in a test, returned `Err`).
    Panicked,
    /// It read through a stale translation.
    Stale,
    /// It did not end by itself, or QEMU failed.
    None(Ended),
}

impl Report {
    /// Reads QEMU's exit status. On x86_64 it is `(value << 1) | 1` with the value written to `isa-debug-exit`, on
    /// aarch64 the value handed to semihosting; QEMU's own failure is 1 on both.
    pub fn of(arch: Arch, ended: Ended) -> Self {
        match (arch, ended) {
            (Arch::X86_64, Ended::Status(33)) | (Arch::Aarch64, Ended::Status(0)) => Report::Passed,
            (Arch::X86_64, Ended::Status(35)) | (Arch::Aarch64, Ended::Status(134)) => {
                Report::Panicked
            }
            (Arch::X86_64, Ended::Status(37)) | (Arch::Aarch64, Ended::Status(3)) => Report::Stale,
            _ => Report::None(ended),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Passed => f.write_str("passed"),
            Report::Panicked => f.write_str("panic"),
            Report::Stale => f.write_str("stale read"),
            Report::None(Ended::Status(1)) => f.write_str("QEMU failed (exit status 1)"),
            // Only on x86_64, where it is no report: `-no-reboot` turns a reset into this.
            Report::None(Ended::Status(0)) => {
                f.write_str("reset (exit status 0): a triple fault ends so")
            }
            Report::None(ended @ Ended::TimedOut(_)) => write!(f, "hang: {ended}"),
            Report::None(ended) => write!(f, "unexpected end: {ended}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, Report};
    use crate::machine::Arch::{Aarch64, X86_64};
    use std::time::Duration;

    #[test]
    fn each_architecture_has_its_own_statuses() {
        assert_eq!(Report::of(X86_64, Ended::Status(33)), Report::Passed);
        assert_eq!(Report::of(X86_64, Ended::Status(35)), Report::Panicked);
        assert_eq!(Report::of(X86_64, Ended::Status(37)), Report::Stale);
        assert_eq!(Report::of(Aarch64, Ended::Status(0)), Report::Passed);
        assert_eq!(Report::of(Aarch64, Ended::Status(134)), Report::Panicked);
        assert_eq!(Report::of(Aarch64, Ended::Status(3)), Report::Stale);
    }

    #[test]
    fn nothing_else_is_a_report() {
        for ended in [
            Ended::Status(0),
            Ended::Status(1),
            Ended::Status(134),
            Ended::Signal(6),
        ] {
            assert_eq!(Report::of(X86_64, ended), Report::None(ended));
        }
        // QEMU's own abort is a signal, not the status of a kernel that panicked.
        for ended in [
            Ended::Status(1),
            Ended::Status(33),
            Ended::Signal(6),
            Ended::TimedOut(Duration::ZERO),
        ] {
            assert_eq!(Report::of(Aarch64, ended), Report::None(ended));
        }
    }
}
