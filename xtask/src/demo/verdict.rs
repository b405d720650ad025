//! Whether a kernel did what it should.

use super::counts::Counts;
use qemu_test_runner::ended::Report;

/// Judges a boot; the error says what went wrong. A kernel with working flushes must read nothing stale; one whose
/// invalidation is skipped on purpose must notice.
pub fn judge(
    report: Report,
    counts: &Result<Counts, String>,
    break_flush: bool,
) -> Result<(), String> {
    let counted = || {
        counts
            .as_ref()
            .map(|counts| counts.numbers.stale)
            .map_err(String::clone)
    };
    match (report, break_flush) {
        (Report::Passed, false) => match counted()? {
            0 => Ok(()),
            stale => Err(format!(
                "{stale} stale reads, although the kernel says it passed"
            )),
        },
        (Report::Stale, true) => match counted()? {
            0 => Err("the kernel says stale, but counted no stale read".into()),
            _ => Ok(()),
        },
        (Report::Passed, true) => {
            Err("no stale read was noticed, although the flush was skipped".into())
        }
        (Report::Stale, false) => Err("stale read".into()),
        (Report::Panicked | Report::None(_), _) => Err(report.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::demo::counts::tests::counts;
    use qemu_test_runner::ended::{Ended, Report};
    use std::time::Duration;

    #[test]
    fn a_working_flush_passes_without_stale_reads_only() {
        assert_eq!(judge(Report::Passed, &Ok(counts(0)), false), Ok(()));
        assert!(judge(Report::Passed, &Ok(counts(1)), false).is_err());
        assert!(judge(Report::Passed, &Err("none".into()), false).is_err());
        assert!(judge(Report::Stale, &Ok(counts(1)), false).is_err());
    }

    #[test]
    fn a_broken_flush_must_be_noticed() {
        assert_eq!(judge(Report::Stale, &Ok(counts(1)), true), Ok(()));
        assert!(judge(Report::Stale, &Ok(counts(0)), true).is_err());
        assert!(judge(Report::Stale, &Err("none".into()), true).is_err());
        assert!(judge(Report::Passed, &Ok(counts(0)), true).is_err());
    }

    #[test]
    fn a_panic_or_hang_is_never_right() {
        let hang = Report::None(Ended::TimedOut(Duration::from_secs(1)));
        for report in [Report::Panicked, hang, Report::None(Ended::Status(1))] {
            for break_flush in [false, true] {
                assert!(judge(report, &Ok(counts(u64::from(break_flush))), break_flush).is_err());
            }
        }
    }
}
