//! Whether a kernel did what it should.

use super::{counts::Counts, phases};
use qemu_test_runner::ended::Report;

/// Judges a boot; the error says what went wrong. A kernel with working flushes must read nothing stale; one whose
/// invalidation is skipped on purpose must notice.
pub fn judge(
    report: Report,
    counts: &Result<Counts, String>,
    broken: Option<&str>,
) -> Result<(), String> {
    let counted = || counts.as_ref().map_err(String::clone);
    match (report, broken) {
        (Report::Passed, None) => match counted()?.numbers.stale {
            0 => phases::judge(&counted()?.numbers, None),
            stale => Err(format!(
                "{stale} stale reads, although the kernel says it passed"
            )),
        },
        (Report::Stale, Some(_)) => match counted()?.numbers.stale {
            0 => Err("the kernel says stale, but counted no stale read".into()),
            _ => phases::judge(&counted()?.numbers, broken),
        },
        (Report::Passed, Some(_)) => {
            Err("no stale read was noticed, although the flush was skipped".into())
        }
        (Report::Stale, None) => Err("stale read".into()),
        (Report::Panicked | Report::None(_), _) => Err(report.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::judge;

    const BROKEN: Option<&str> = Some("break-flush");
    use crate::demo::counts::tests::counts;
    use qemu_test_runner::ended::{Ended, Report};
    use std::time::Duration;

    #[test]
    fn a_working_flush_passes_without_stale_reads_only() {
        assert_eq!(judge(Report::Passed, &Ok(counts(0)), None), Ok(()));
        assert!(judge(Report::Passed, &Ok(counts(1)), None).is_err());
        assert!(judge(Report::Passed, &Err("none".into()), None).is_err());
        assert!(judge(Report::Stale, &Ok(counts(1)), None).is_err());
    }

    #[test]
    fn a_broken_flush_must_be_noticed() {
        assert_eq!(judge(Report::Stale, &Ok(counts(1)), BROKEN), Ok(()));
        assert!(judge(Report::Stale, &Ok(counts(0)), BROKEN).is_err());
        assert!(judge(Report::Stale, &Err("none".into()), BROKEN).is_err());
        assert!(judge(Report::Passed, &Ok(counts(0)), BROKEN).is_err());
    }

    #[test]
    fn a_panic_or_hang_is_never_right() {
        let hang = Report::None(Ended::TimedOut(Duration::from_secs(1)));
        for report in [Report::Panicked, hang, Report::None(Ended::Status(1))] {
            for (stale, broken) in [(0, None), (1, BROKEN)] {
                assert!(judge(report, &Ok(counts(stale)), broken).is_err());
            }
        }
    }
}
