//! Reads the output of test programs that speak libtest's format.

use super::tally::Outcome;
use qemu_test_runner::process::{Finished, last_lines};

/// How much is shown of each failed test.
const LINES_A_TEST: usize = 15;
/// How many failed tests are shown.
const TESTS_SHOWN: usize = 5;

/// The outcome of a step that runs tests; `details` makes the text to show from a reason. A step that fails without
/// a failed test, or that runs no test at all, counts as one failure.
pub fn outcome(finished: &Finished, details: impl Fn(&str) -> String) -> Outcome {
    let mut outcome = count(&finished.transcript);
    if !finished.succeeded() {
        outcome.failed = outcome.failed.max(1);
        outcome.details = Some(details(&finished.ended.to_string()));
    } else if outcome.failed > 0 {
        outcome.details = Some(details("tests failed, although the command succeeded"));
    } else if outcome.passed == 0 {
        outcome.failed = 1;
        outcome.details = Some(details("no test was run"));
    }
    outcome
}

/// What the failed tests had to say; empty if none got so far.
pub fn failures(output: &str) -> String {
    let mut tests: Vec<Vec<&str>> = Vec::new();
    let mut inside = false;
    for line in output.lines() {
        if line.starts_with("---- ") {
            tests.push(Vec::new());
            inside = true;
        } else if line == "failures:" || line.starts_with("test result:") {
            inside = false;
        }
        if let (true, Some(test)) = (inside && !line.trim().is_empty(), tests.last_mut()) {
            test.push(line);
        }
    }
    let mut text = String::new();
    for test in tests.iter().take(TESTS_SHOWN) {
        text += &last_lines(
            &test[..test.len().min(LINES_A_TEST)].join("\n"),
            LINES_A_TEST,
        );
    }
    if tests.len() > TESTS_SHOWN {
        text += &format!("    ... and {} more\n", tests.len() - TESTS_SHOWN);
    }
    text
}

fn count(output: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in output.lines().map(str::trim) {
        if let Some(result) = line.strip_prefix("test result: ") {
            outcome.passed += number_before(result, "passed");
            outcome.failed += number_before(result, "failed");
        } else if let Some(name) = line.strip_prefix("test ") {
            outcome.skipped.extend(ignored(name));
        }
    }
    outcome
}

/// The number in `N word;`.
fn number_before(result: &str, word: &str) -> u64 {
    let parts = result.split([';', '.']).map(str::trim);
    parts
        .filter_map(|part| part.strip_suffix(word))
        .find_map(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

/// The name of an ignored test and the reason, from `NAME ... ignored, REASON`.
fn ignored(line: &str) -> Option<String> {
    let (name, verdict) = line.split_once(" ... ")?;
    let reason = verdict
        .strip_prefix("ignored")?
        .trim_start_matches([',', ' ']);
    let reason = if reason.is_empty() {
        "marked #[ignore]"
    } else {
        reason
    };
    Some(format!("{}: {reason}", name.trim()))
}

#[cfg(test)]
mod tests {
    use super::{count, failures, outcome};
    use qemu_test_runner::ended::Ended;
    use qemu_test_runner::process::Finished;
    use std::time::Duration;

    const OUTPUT: &str = "\
running 3 tests
test a::b             ... ok
test a::c ... ignored, takes an hour
test a::d ... ignored
test a::e ... FAILED

test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests shootdown
test src/lib.rs - (line 3) ... ok
test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 5 filtered out; finished in 0.00s
";

    fn finished(status: i32, transcript: &str) -> Finished {
        let transcript = transcript.to_string();
        Finished {
            ended: Ended::Status(status),
            stdout: String::new(),
            stderr: String::new(),
            transcript,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn sums_over_all_test_programs() {
        let counted = count(OUTPUT);
        assert_eq!((counted.passed, counted.failed), (21, 1));
        assert_eq!(
            counted.skipped,
            ["a::c: takes an hour", "a::d: marked #[ignore]"]
        );
    }

    #[test]
    fn a_failure_without_a_failed_test_counts() {
        let compile_error = outcome(&finished(101, "error: no"), str::to_string);
        assert_eq!((compile_error.passed, compile_error.failed), (0, 1));
        let after_tests = outcome(&finished(101, OUTPUT), str::to_string);
        assert_eq!((after_tests.passed, after_tests.failed), (21, 1));
        assert_eq!(after_tests.details.as_deref(), Some("exit status 101"));
    }

    #[test]
    fn no_test_is_no_success() {
        let nothing = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let nothing = outcome(&finished(0, nothing), str::to_string);
        assert_eq!((nothing.passed, nothing.failed), (0, 1));
    }

    #[test]
    fn shows_what_failed_tests_said_and_nothing_else() {
        let output = "test a ... FAILED\n\nfailures:\n\n---- a ----\npanic\n  last output:\n    stale\n\n\nfailures:\n    a\n\n\
                      test result: FAILED. 0 passed; 1 failed;\n\nrunning 1 test\ntest b ... ok\n";
        assert_eq!(
            failures(output),
            "    ---- a ----\n    panic\n      last output:\n        stale\n"
        );
        let many = "---- a ----\nno\n".repeat(7);
        assert!(failures(&many).ends_with("    ... and 2 more\n"));
        assert_eq!(failures("error: it does not compile"), "");
    }
}
