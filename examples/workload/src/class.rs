//! What the processes of a class did, and whom that disturbed.

use core::fmt;

use shootdown::TlbFlusher;

use crate::tally::Tally;

/// Figures of a class of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// What it is called.
    pub name: &'static str,
    /// What was counted while it ran.
    pub seen: Seen,
    /// Flushes of freed tables.
    pub tables_freed: u64,
    /// Times a CPU loaded a process that it had not loaded before.
    pub first_loads: u64,
}

macro_rules! seen {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Counts of the flusher and the workload, since boot or of a period.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Seen { $($(#[$meta])* pub $name: u64,)* }

        impl Seen {
            /// What came since `before`.
            #[must_use]
            pub fn since(&self, before: Self) -> Self {
                Self { $($name: self.$name - before.$name,)* }
            }
        }
    };
}

seen! {
    /// Flushes.
    flushes,
    /// Those that stayed on the CPU that asked for them.
    local,
    /// Those of no CPU at all: the process slept.
    elided,
    /// Those that all CPUs took part in.
    remote,
    /// Interrupts sent, one a CPU that had to flush.
    ipis_sent,
    /// Invalidation instructions that were broadcast.
    broadcasts,
    /// Loads of a process that first dropped its old entries: stale-bit flushes.
    late,
    /// Flushes of freed tables that stayed on one CPU.
    local_tables,
    /// Times a thread went on on another CPU.
    migrations,
    /// Reads that were verified.
    reads,
    /// Those of them that were stale.
    stale,
    /// Those of the stale ones that were on another CPU than the change.
    stale_elsewhere,
}

impl Seen {
    /// The counts since boot.
    pub(crate) fn now(tlb: &impl TlbFlusher, tally: &Tally) -> Self {
        let counters = tlb.counters();
        Self {
            flushes: counters.flushes,
            local: counters.local - counters.elided_unused,
            elided: counters.elided_unused,
            remote: counters.remote,
            ipis_sent: counters.ipis_sent,
            broadcasts: counters.broadcasts,
            late: counters.switches_flushed,
            local_tables: counters.local_tables,
            migrations: tally.migrations(),
            reads: tally.reads(),
            stale: tally.stale(),
            stale_elsewhere: tally.stale_elsewhere(),
        }
    }
}

/// A title and its number.
type Line = (&'static str, fn(&Class) -> u64);

/// Prints classes as a table.
#[derive(Clone, Copy, Debug)]
pub struct Classes<'a>(pub &'a [Class]);

impl fmt::Display for Classes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<24}", "processes")?;
        for class in self.0 {
            write!(f, " {:>12}", class.name)?;
        }
        let lines: [Line; 12] = [
            ("flushes", |class| class.seen.flushes),
            ("  local", |class| class.seen.local),
            ("  elided: it slept", |class| class.seen.elided),
            ("  broadcast", |class| class.seen.remote),
            ("  of freed tables", |class| class.tables_freed),
            ("  of these local", |class| class.seen.local_tables),
            ("TLBIs broadcast", |class| class.seen.broadcasts),
            ("stale-bit flushes", |class| class.seen.late),
            ("  of these first loads", |class| class.first_loads),
            ("migrations", |class| class.seen.migrations),
            ("stale reads", |class| class.seen.stale),
            ("  on another CPU", |class| class.seen.stale_elsewhere),
        ];
        for (title, number) in lines {
            write!(f, "\n  {title:<22}")?;
            for class in self.0 {
                write!(f, " {:>12}", number(class))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_period_is_the_difference() {
        let (before, now) = (
            Seen {
                flushes: 3,
                stale: 1,
                ..Seen::default()
            },
            Seen {
                flushes: 10,
                stale: 1,
                ..Seen::default()
            },
        );
        let expected = Seen {
            flushes: 7,
            ..Seen::default()
        };
        assert_eq!(now.since(before), expected);
    }

    #[test]
    fn the_table_has_a_column_for_each_class() {
        let class = |name, local_tables| Class {
            name,
            seen: Seen {
                local_tables,
                ..Seen::default()
            },
            ..Class::default()
        };
        let table = Classes(&[class("one", 4711), class("two", 42)]).to_string();
        let words = |line: &str| line.split_whitespace().map(ToString::to_string).collect();
        let lines: std::vec::Vec<std::vec::Vec<_>> = table.lines().map(words).collect();
        assert_eq!(lines[0], ["processes", "one", "two"]);
        assert!(lines.contains(&words("of these local 4711 42")));
    }
}
