//! How a run ends: a table for people, and the same as JSON.

use core::fmt;

use crate::phase::Phase;

/// The numbers of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The architecture.
    pub arch: &'static str,
    /// The crate's backend, by the name of the kernel.
    pub backend: &'static str,
    /// CPUs that took part.
    pub cpus: u64,
    /// Flushes that completed.
    pub flushes: u64,
    /// Those that reached other CPUs.
    pub remote: u64,
    /// Pages that flushes of a range named.
    pub pages: u64,
    /// Reads that were verified.
    pub reads: u64,
    /// Times that a thread went on on another CPU.
    pub migrations: u64,
    /// Reads through a translation that a completed flush should have removed.
    pub stale: u64,
    /// Interrupts sent to CPUs that had to flush.
    pub ipis_sent: u64,
    /// Interrupts spared: the CPU was lazy, had another space loaded, or had one coming.
    pub ipis_elided: u64,
    /// Those of them that were spared since the hypervisor flushes the CPU.
    pub by_host: u64,
    /// Flushes the hardware broadcast.
    pub broadcasts: u64,
    /// Flushes of this CPU alone.
    pub local: u64,
    /// Flushes of everything a space has.
    pub full: u64,
}

impl Report {
    fn numbers(&self) -> [(&'static str, u64, &'static str); 13] {
        [
            ("cpus", self.cpus, "CPUs that took part"),
            (
                "flushes",
                self.flushes,
                "flushes asked for, all of which completed",
            ),
            (
                "remote",
                self.remote,
                "times that flushing reached other CPUs (a batch counts once)",
            ),
            ("pages", self.pages, "pages that flushes of a range named"),
            ("reads", self.reads, "reads that were verified"),
            (
                "migrations",
                self.migrations,
                "times a thread went on on another CPU",
            ),
            (
                "stale",
                self.stale,
                "reads that saw what a completed flush had removed",
            ),
            (
                "ipis_sent",
                self.ipis_sent,
                "interrupts sent to CPUs that had to flush",
            ),
            (
                "ipis_elided",
                self.ipis_elided,
                "interrupts spared: the CPU was lazy, elsewhere, or had one coming",
            ),
            (
                "by_host",
                self.by_host,
                "those of them that were left to the hypervisor",
            ),
            (
                "broadcasts",
                self.broadcasts,
                "flushes that the hardware broadcast",
            ),
            ("local", self.local, "times that it needed no other CPU"),
            ("full", self.full, "flushes of a whole space"),
        ]
    }

    /// As a table that a person can read, one number a line.
    #[must_use]
    pub const fn table(&self) -> Table<'_> {
        Table(self)
    }

    /// As one JSON object on one line.
    #[must_use]
    pub const fn json(&self) -> Json<'_> {
        self.json_with(&[])
    }

    /// As [`json`](Self::json), with the phases that the run began with, if any.
    #[must_use]
    pub const fn json_with<'a>(&'a self, phases: &'a [Phase]) -> Json<'a> {
        Json(self, phases)
    }
}

/// Prints a [`Report`] as a table.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a>(&'a Report);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.arch, self.0.backend)?;
        for (name, value, meaning) in self.0.numbers() {
            write!(f, "\n  {name:<12} {value:>10}  {meaning}")?;
        }
        Ok(())
    }
}

/// Prints a [`Report`] as a JSON object.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a>(&'a Report, &'a [Phase]);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            r#"{{"arch":"{}","backend":"{}""#,
            self.0.arch, self.0.backend
        )?;
        for (name, value, _) in self.0.numbers() {
            write!(f, r#","{name}":{value}"#)?;
        }
        for (index, phase) in self.1.iter().enumerate() {
            f.write_str(if index == 0 { r#","phases":["# } else { "," })?;
            phase.json(f)?;
        }
        f.write_str(if self.1.is_empty() { "}" } else { "]}" })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;

    #[test]
    fn json_has_every_key_in_order() {
        let report = Report {
            arch: "x86_64",
            backend: "ipi",
            cpus: 4,
            flushes: 5,
            full: 6,
            ..Report::default()
        };
        assert_eq!(
            report.json().to_string(),
            "{\"arch\":\"x86_64\",\"backend\":\"ipi\",\"cpus\":4,\"flushes\":5,\"remote\":0,\"pages\":0,\"reads\":0,\
             \"migrations\":0,\"stale\":0,\"ipis_sent\":0,\"ipis_elided\":0,\"by_host\":0,\"broadcasts\":0,\"local\":0,\"full\":6}"
        );
    }

    #[test]
    fn the_table_has_a_line_for_each_number() {
        let table = Report {
            stale: 42,
            ..Report::default()
        }
        .table()
        .to_string();
        assert_eq!(table.lines().count(), 14);
        assert!(
            table
                .lines()
                .any(|line| line.split_whitespace().take(2).eq(["stale", "42"]))
        );
    }
}
