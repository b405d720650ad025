//! Counts what passed, failed and was skipped.

use std::fmt::Write;
use std::time::Duration;

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many tests passed, or 1 for a step that passed.
    pub passed: u64,
    /// How many failed.
    pub failed: u64,
    /// What was skipped, and why.
    pub skipped: Vec<String>,
    /// What to show of a failure.
    pub details: Option<String>,
}

impl Outcome {
    /// A step that passed.
    pub fn passed() -> Self {
        Outcome {
            passed: 1,
            ..Outcome::default()
        }
    }

    /// A step that failed.
    pub fn failed(details: String) -> Self {
        Outcome {
            failed: 1,
            details: Some(details),
            ..Outcome::default()
        }
    }

    /// A step that was not run.
    pub fn skipped(reason: String) -> Self {
        Outcome {
            skipped: vec![reason],
            ..Outcome::default()
        }
    }

    /// A line on the step, and the details of its failure.
    pub fn describe(&self, name: &str, took: Duration) -> String {
        let word = match (self.failed, self.passed) {
            (1.., _) => "FAILED",
            (0, 0) => "skipped",
            (0, _) => "ok",
        };
        let mut text = format!("{word:<8}{name}");
        if self.passed + self.failed > 1 {
            let _ = write!(text, ": {} passed, {} failed", self.passed, self.failed);
        }
        if self.passed + self.failed == 0 {
            text += &format!(": {}", self.skipped.join("; "));
        } else {
            let _ = write!(text, " ({:.1} s)", took.as_secs_f64());
        }
        if let Some(details) = &self.details {
            let _ = write!(text, "\n  {}", details.trim_end());
        }
        text
    }
}

/// The sum over all steps.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    failures: Vec<String>,
}

impl Tally {
    /// Adds a step.
    pub fn add(&mut self, name: &str, outcome: Outcome) {
        self.passed += outcome.passed;
        self.failed += outcome.failed;
        self.skipped.extend(
            outcome
                .skipped
                .iter()
                .map(|reason| format!("{name}: {reason}")),
        );
        if outcome.failed > 0 {
            self.failures.push(name.to_string());
        }
    }

    /// Whether anything failed.
    pub fn has_failed(&self) -> bool {
        self.failed > 0
    }

    /// What was skipped and what failed; the last line holds the three sums alone.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for (title, names) in [("skipped:", &self.skipped), ("failed:", &self.failures)] {
            if !names.is_empty() {
                let lines: String = names.iter().map(|name| format!("\n  {name}")).collect();
                text += &format!("\n{title}{lines}\n");
            }
        }
        text += &format!(
            "\n{} passed, {} failed, {} skipped\n",
            self.passed,
            self.failed,
            self.skipped.len()
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Tally};
    use std::time::Duration;

    #[test]
    fn the_last_line_sums_up_alone() {
        let mut tally = Tally::default();
        tally.add("format", Outcome::passed());
        tally.add(
            "tests",
            Outcome {
                passed: 7,
                failed: 2,
                skipped: vec!["slow: by hand".into()],
                details: None,
            },
        );
        tally.add("other", Outcome::skipped("no such CPU model".into()));
        let summary = tally.summary();
        assert_eq!(
            summary.lines().last(),
            Some("8 passed, 2 failed, 2 skipped")
        );
        assert!(summary.contains("  tests: slow: by hand\n  other: no such CPU model\n"));
        assert!(summary.contains("failed:\n  tests\n"));
        assert!(tally.has_failed());
    }

    #[test]
    fn nothing_failed_is_a_success() {
        let mut tally = Tally::default();
        tally.add("format", Outcome::passed());
        assert!(!tally.has_failed());
        assert_eq!(tally.summary(), "\n1 passed, 0 failed, 0 skipped\n");
    }

    #[test]
    fn a_step_is_described_on_a_line() {
        let took = Duration::from_millis(1500);
        assert_eq!(
            Outcome::passed().describe("format", took),
            "ok      format (1.5 s)"
        );
        assert_eq!(
            Outcome::skipped("why".into()).describe("x", took),
            "skipped x: why"
        );
        let failed = Outcome {
            passed: 1,
            failed: 1,
            details: Some("reason\n".into()),
            ..Outcome::default()
        };
        assert_eq!(
            failed.describe("x", took),
            "FAILED  x: 1 passed, 1 failed (1.5 s)\n  reason"
        );
    }
}
