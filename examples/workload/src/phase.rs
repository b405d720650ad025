//! What a space cost while a number of CPUs ran it.

use core::fmt;

use crate::class::Seen;

/// Figures of a phase, in which some CPUs ran one space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// What it is called.
    pub name: &'static str,
    /// CPUs that ran the space.
    pub cpus: u64,
    /// The hardware tag that the space had on all CPUs at the end, 0 if it had none.
    pub tag: u16,
    /// What was counted meanwhile.
    pub seen: Seen,
}

impl Phase {
    fn numbers(&self) -> [(&'static str, u64, &'static str); 8] {
        [
            ("cpus", self.cpus, "CPUs that ran the space"),
            ("tag", self.tag.into(), "its global PCID, 0 if it has none"),
            ("flushes", self.seen.flushes, "flushes asked for"),
            ("ipis_sent", self.seen.ipis_sent, "interrupts sent"),
            ("broadcasts", self.seen.broadcasts, "INVLPGBs"),
            ("reads", self.seen.reads, "reads that were verified"),
            ("stale", self.seen.stale, "those that were stale"),
            (
                "stale_elsewhere",
                self.seen.stale_elsewhere,
                "those on another CPU than the change",
            ),
        ]
    }

    pub(crate) fn json(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"{{"name":"{}""#, self.name)?;
        for (name, value, _) in self.numbers() {
            write!(f, r#","{name}":{value}"#)?;
        }
        f.write_str("}")
    }
}

/// Prints phases as a table, a column each.
#[derive(Clone, Copy, Debug)]
pub struct Phases<'a>(pub &'a [Phase]);

impl fmt::Display for Phases<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16}", "a space run by")?;
        for phase in self.0 {
            write!(f, " {:>11}", phase.name)?;
        }
        let Some(first) = self.0.first() else {
            return Ok(());
        };
        for (line, (title, _, meaning)) in first.numbers().into_iter().enumerate() {
            write!(f, "\n  {title:<14}")?;
            for phase in self.0 {
                let (_, value, _) = phase.numbers()[line];
                write!(f, " {value:>11}")?;
            }
            write!(f, "  {meaning}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{string::ToString, vec::Vec};

    use super::*;
    use crate::report::Report;

    fn phases() -> [Phase; 2] {
        [
            Phase {
                name: "few",
                cpus: 3,
                tag: 0,
                seen: Seen {
                    flushes: 11,
                    ipis_sent: 22,
                    reads: 33,
                    stale: 1,
                    stale_elsewhere: 1,
                    ..Seen::default()
                },
            },
            Phase {
                name: "many",
                cpus: 4,
                tag: 7,
                ..Phase::default()
            },
        ]
    }

    #[test]
    fn the_table_has_a_column_for_each_phase() {
        let table = Phases(&phases()).to_string();
        let words = |line: &str| line.split_whitespace().map(ToString::to_string).collect();
        let lines: Vec<Vec<_>> = table.lines().map(words).collect();
        assert_eq!(lines[0][4..], ["few", "many"]);
        for start in ["tag 0 7", "ipis_sent 22 0", "cpus 3 4"] {
            let start: Vec<_> = words(start);
            assert!(
                lines.iter().any(|line| line.starts_with(&start)),
                "{start:?}"
            );
        }
    }

    #[test]
    fn the_report_lists_them() {
        let json = Report::default().json_with(&phases()).to_string();
        let phases = json.split_once(r#","phases":["#).unwrap().1;
        assert_eq!(
            phases,
            concat!(
                r#"{"name":"few","cpus":3,"tag":0,"flushes":11,"ipis_sent":22,"broadcasts":0,"reads":33,"stale":1,"stale_elsewhere":1},"#,
                r#"{"name":"many","cpus":4,"tag":7,"flushes":0,"ipis_sent":0,"broadcasts":0,"reads":0,"stale":0,"stale_elsewhere":0}]}"#
            )
        );
        assert!(!Report::default().json().to_string().contains("phases"));
    }
}
