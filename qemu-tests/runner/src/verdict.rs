//! Whether a test passed.

use crate::ended::{Ended, Report};
use crate::machine::Arch;

/// Judges one boot of one test; the error is the reason of the failure.
pub fn judge(arch: Arch, ended: Ended, should_panic: bool) -> Result<(), String> {
    match (Report::of(arch, ended), should_panic) {
        (Report::Passed, false) | (Report::Panicked, true) => Ok(()),
        (Report::Passed, true) => Err("the test did not panic as it should".into()),
        (report, _) => Err(report.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::ended::Ended::{Signal, Status, TimedOut};
    use crate::machine::Arch::{Aarch64, X86_64};
    use std::time::Duration;

    #[test]
    fn only_the_status_that_means_it_passes() {
        for status in 0..256 {
            assert_eq!(
                judge(X86_64, Status(status), false).is_ok(),
                status == 33,
                "{status}"
            );
            assert_eq!(
                judge(X86_64, Status(status), true).is_ok(),
                status == 35,
                "{status}"
            );
            assert_eq!(
                judge(Aarch64, Status(status), false).is_ok(),
                status == 0,
                "{status}"
            );
            assert_eq!(
                judge(Aarch64, Status(status), true).is_ok(),
                status == 134,
                "{status}"
            );
        }
    }

    #[test]
    fn a_hang_or_a_crash_of_qemu_is_no_panic() {
        for ended in [Signal(6), TimedOut(Duration::from_secs(1))] {
            assert!(judge(Aarch64, ended, true).is_err());
            assert!(judge(X86_64, ended, false).is_err());
        }
    }
}
