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
    /// What it counted, if it got that far.
    pub counts: Option<Counts>,
    /// How it ended.
    pub report: Report,
    /// Whether that is right, or why not.
    pub verdict: Result<(), String>,
    /// How long it ran.
    pub took: Duration,
}

type Column = (&'static str, fn(&Numbers) -> u64, &'static str);

/// A column's title, its number, and what it means.
const COLUMNS: [Column; 12] = [
    ("cpus", |n| n.cpus, "CPUs that took part"),
    ("flushes", |n| n.flushes, "flushes that completed"),
    (
        "remote",
        |n| n.remote,
        "those of them that had to reach other CPUs",
    ),
    ("pages", |n| n.pages, "pages that were flushed one by one"),
    ("reads", |n| n.reads, "reads whose result was verified"),
    (
        "migrations",
        |n| n.migrations,
        "times a thread went on on another CPU",
    ),
    (
        "stale",
        |n| n.stale,
        "reads through a translation that a completed flush should have removed",
    ),
    (
        "ipis_sent",
        |n| n.ipis_sent,
        "interrupts sent to CPUs that had to flush",
    ),
    (
        "ipis_elided",
        |n| n.ipis_elided,
        "interrupts spared: the CPU was lazy or had moved on",
    ),
    (
        "broadcasts",
        |n| n.broadcasts,
        "flushes that the hardware carried to all CPUs",
    ),
    ("local", |n| n.local, "flushes that needed no other CPU"),
    (
        "full",
        |n| n.full,
        "flushes of a whole space instead of single pages",
    ),
];

/// The table and its legend.
pub fn render(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let titles = COLUMNS.iter().map(|(title, ..)| *title);
    table.set_header(
        ["arch", "backend"]
            .into_iter()
            .chain(titles)
            .chain(["result"]),
    );
    for row in rows {
        let number = |(_, number, _): &Column| {
            row.counts
                .as_ref()
                .map_or("-".into(), |counts| number(&counts.numbers).to_string())
        };
        let names = [row.kernel.arch.to_string(), row.kernel.backend.to_string()];
        let result = match (&row.verdict, row.report) {
            (Ok(()), Report::Stale) => "stale, as it should".to_string(),
            (Ok(()), _) => format!("ok in {:.1} s", row.took.as_secs_f64()),
            (Err(_), Report::Passed) => "FAILED".to_string(),
            (Err(_), report) => format!("FAILED: {report}"),
        };
        table.add_row(
            names
                .into_iter()
                .chain(COLUMNS.iter().map(number))
                .chain([result]),
        );
    }
    for index in 2..2 + COLUMNS.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let legend = COLUMNS
        .iter()
        .map(|(title, _, meaning)| format!("\n  {title:<11} {meaning}"));
    format!("{table}\n{}", legend.collect::<String>())
}

/// One sentence on all kernels.
pub fn conclusion(rows: &[Row], break_flush: bool) -> String {
    let right = rows.iter().filter(|row| row.verdict.is_ok()).count();
    let of = rows.len();
    match (right == of, break_flush) {
        (true, false) => format!("\nAll {of} kernels ran without a stale read."),
        (true, true) => format!("\nAll {of} kernels noticed that the invalidation was skipped."),
        (false, false) => format!("\nOnly {right} of {of} kernels ran without a stale read."),
        (false, true) => {
            format!("\nOnly {right} of {of} kernels noticed that the invalidation was skipped.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, Row, conclusion, render};
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
                counts: Some(counts(0)),
                report: Report::Passed,
                verdict: Ok(()),
                took,
            },
            Row {
                kernel: &KERNELS[1],
                counts: None,
                report: hang,
                verdict: Err("hang".into()),
                took,
            },
        ]
    }

    #[test]
    fn every_kernel_has_a_row_and_every_column_a_meaning() {
        let text = render(&rows());
        let row = text
            .lines()
            .find(|line| line.contains("| ipi "))
            .expect("a row");
        let cells: Vec<_> = row
            .split('|')
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect();
        let expected = [
            "x86_64",
            "ipi",
            "4",
            "10",
            "9",
            "8",
            "7",
            "6",
            "0",
            "5",
            "4",
            "0",
            "3",
            "2",
            "ok in 1.2 s",
        ];
        assert_eq!(cells, expected);
        assert!(
            text.lines()
                .any(|line| line.contains("concurrent_ipi") && line.contains("FAILED: hang"))
        );
        for (title, _, meaning) in COLUMNS {
            assert!(
                text.lines()
                    .any(|line| line.trim().starts_with(title) && line.ends_with(meaning))
            );
        }
    }

    #[test]
    fn the_conclusion_counts_what_is_right() {
        assert!(conclusion(&rows(), false).contains("Only 1 of 2"));
        assert!(conclusion(&rows()[..1], true).contains("All 1 kernels noticed"));
    }
}
