use super::{Group, LaunchError, last_lines, run};
use crate::ended::Ended;
use std::process::Command;
use std::time::{Duration, Instant};

fn shell(script: &str, limit: Duration, group: Group) -> (super::Finished, Vec<String>) {
    let mut lines = Vec::new();
    let finished = run(
        Command::new("sh").args(["-c", script]),
        limit,
        group,
        &mut |line| lines.push(line.to_string()),
    );
    (finished.expect("sh runs"), lines)
}

#[test]
fn collects_both_streams_and_the_status() {
    let (finished, mut lines) = shell(
        "echo out; echo err >&2; printf end; exit 7",
        secs(20),
        Group::Shared,
    );
    assert_eq!(finished.ended, Ended::Status(7));
    assert_eq!(finished.stdout, "out\nend");
    assert_eq!(finished.stderr, "err\n");
    assert!(finished.transcript.contains("err\n"));
    lines.sort();
    assert_eq!(lines, ["end", "err", "out"]);
}

#[test]
fn ends_a_hang_with_all_that_it_started() {
    let started = Instant::now();
    let (finished, lines) = shell("echo begun; sleep 60 & sleep 60", secs(1), Group::Own);
    assert_eq!(finished.ended, Ended::TimedOut(secs(1)));
    assert_eq!(lines, ["begun"]);
    assert!(started.elapsed() < secs(20));
}

#[test]
fn does_not_wait_for_what_the_child_leaves_behind() {
    let started = Instant::now();
    let (finished, _) = shell("sleep 30 & exit 0", secs(25), Group::Shared);
    assert_eq!(finished.ended, Ended::Status(0));
    assert!(started.elapsed() < secs(20));
}

#[test]
fn tells_a_signal_from_a_status() {
    let (finished, _) = shell("kill -ABRT $$", secs(20), Group::Shared);
    assert_eq!(finished.ended, Ended::Signal(6));
}

#[test]
fn names_what_to_install() {
    let error = run(
        &mut Command::new("qemu-system-none"),
        secs(1),
        Group::Shared,
        &mut |_| {},
    );
    let error = error.expect_err("there is no such program");
    assert!(matches!(&error, LaunchError::NotFound { program } if program == "qemu-system-none"));
    assert!(
        error
            .to_string()
            .contains("apt-get install -y --no-install-recommends qemu-system-x86")
    );
}

#[test]
fn shows_the_last_lines() {
    assert_eq!(last_lines("a\nb\r\nc\n", 2), "    b\n    c\n");
    assert_eq!(last_lines("", 2), "");
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
