//! The table over all kernels.

use super::counts::{Counts, Numbers};
use crate::kernels::Kernel;
use comfy_table::{CellAlignment, Table, presets};
use qemu_test_runner::ended::Report;
use std::time::Duration;

/// A kernel's boot.
#[derive(Debug)]
pub struct Row {
    /// What was booted.
    pub kernel: &'static Kernel,
    /// How its flush was broken on purpose.
    pub broken: Option<&'static str>,
    /// What it counted, if it got that far.
    pub counts: Option<Counts>,
    /// How it ended.
    pub report: Report,
    /// Whether that is right, or why not.
    pub verdict: Result<(), String>,
    /// How long it ran.
    pub took: Duration,
}

impl Row {
    /// The kernel, and the instruction that it lacked if that was a single one.
    pub fn name(&self) -> String {
        let Kernel { arch, backend, .. } = self.kernel;
        let lacks = self.broken.and_then(|word| word.split_once('='));
        match lacks {
            Some((_, instruction)) => format!("{arch}\n{backend}\nwithout {instruction}"),
            None => format!("{arch}\n{backend}"),
        }
    }
}

type Line = (&'static str, fn(&Numbers) -> u64, &'static str);

/// A line's title, its number, and what it means.
const LINES: [Line; 13] = [
    ("cpus", |n| n.cpus, "CPUs that took part"),
    (
        "flushes",
        |n| n.flushes,
        "flushes, each waited for until it was complete",
    ),
    (
        "remote",
        |n| n.remote,
        "flushes that reached at least one other CPU",
    ),
    (
        "pages",
        |n| n.pages,
        "pages named by the flushes of a range",
    ),
    ("reads", |n| n.reads, "reads whose result was verified"),
    (
        "migrations",
        |n| n.migrations,
        "times a thread went on on another CPU",
    ),
    (
        "stale",
        |n| n.stale,
        "reads that saw what a completed flush had removed",
    ),
    (
        "ipis_sent",
        |n| n.ipis_sent,
        "interrupts sent, one a CPU that had to flush",
    ),
    (
        "ipis_elided",
        |n| n.ipis_elided,
        "interrupts spared: CPU lazy, in another space, told before, or left to the host",
    ),
    (
        "by_host",
        |n| n.by_host,
        "those of them that the hypervisor saw to",
    ),
    (
        "broadcasts",
        |n| n.broadcasts,
        "invalidations that the hardware carried to all CPUs",
    ),
    ("local", |n| n.local, "flushes that needed no other CPU"),
    (
        "full",
        |n| n.full,
        "flushes of everything in a space, not of single pages",
    ),
];

/// The table: a column per kernel, a line per number with its meaning.
pub fn render(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let names = rows.iter().map(Row::name);
    table.set_header(cells("", names, "\nmeaning"));
    for (title, number, meaning) in LINES {
        let numbers = rows.iter().map(|row| match &row.counts {
            Some(counts) => number(&counts.numbers).to_string(),
            None => "-".into(),
        });
        table.add_row(cells(title, numbers, meaning));
    }
    table.add_row(cells("result", rows.iter().map(result), ""));
    for column in table.column_iter_mut().skip(1).take(rows.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn cells(title: &str, middle: impl Iterator<Item = String>, meaning: &str) -> Vec<String> {
    std::iter::once(title.to_string())
        .chain(middle)
        .chain([meaning.to_string()])
        .collect()
}

fn result(row: &Row) -> String {
    let seconds = row.took.as_secs_f64();
    match (&row.verdict, row.report) {
        (Ok(()), Report::Stale) => format!("stale, as it should\nin {seconds:.1} s"),
        (Ok(()), _) => format!("ok\nin {seconds:.1} s"),
        (Err(_), Report::Passed) => "FAILED".into(),
        (Err(_), Report::None(_)) => "FAILED\nhang or crash".into(),
        (Err(_), report) => format!("FAILED\n{report}"),
    }
}

/// One sentence on all kernels.
pub fn conclusion(rows: &[Row], break_flush: bool) -> String {
    let right = rows.iter().filter(|row| row.verdict.is_ok()).count();
    let of = rows.len();
    match (right == of, break_flush) {
        (true, false) => format!("\nAll {of} kernels ran without a stale read."),
        (true, true) => format!("\nAll {of} boots noticed that the invalidation was skipped."),
        (false, false) => format!("\nOnly {right} of {of} kernels ran without a stale read."),
        (false, true) => {
            format!("\nOnly {right} of {of} boots noticed that the invalidation was skipped.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LINES, Row, conclusion, render};
    use crate::demo::counts::tests::counts;
    use crate::kernels::KERNELS;
    use qemu_test_runner::ended::{Ended, Report};
    use std::time::Duration;

    fn rows() -> [Row; 2] {
        let took = Duration::from_millis(1250);
        let hang = Report::None(Ended::TimedOut(took));
        [
            Row {
                kernel: &KERNELS[0],
                broken: None,
                counts: Some(counts(0)),
                report: Report::Passed,
                verdict: Ok(()),
                took,
            },
            Row {
                kernel: &KERNELS[1],
                broken: None,
                counts: None,
                report: hang,
                verdict: Err("hang".into()),
                took,
            },
        ]
    }

    #[test]
    fn every_kernel_has_a_column_and_every_line_a_meaning() {
        let text = render(&rows());
        assert!(text.contains("x86_64") && text.contains("concurrent_ipi"));
        let line = |title: &str| {
            text.lines()
                .find(|line| line.trim().starts_with(title))
                .expect("a line")
        };
        for (title, number, meaning) in LINES {
            let counted = number(&counts(0).numbers).to_string();
            let words: Vec<_> = line(title).split_whitespace().take(3).collect();
            assert_eq!(words, [title, &counted, "-"]);
            assert!(line(title).ends_with(meaning));
        }
        assert_eq!(
            line("result").split_whitespace().collect::<Vec<_>>(),
            ["result", "ok", "FAILED"]
        );
    }

    #[test]
    fn the_conclusion_counts_what_is_right() {
        assert!(conclusion(&rows(), false).contains("Only 1 of 2"));
        assert!(conclusion(&rows()[..1], true).contains("All 1 boots noticed"));
    }
}
