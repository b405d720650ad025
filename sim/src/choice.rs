//! Choices, and where in a run they are made. A run is replayed from a sparse map of them.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// What may happen at a scheduling point besides that the running CPU goes on.
///
/// CPUs are named by their index in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Choice {
    /// Another CPU runs.
    Run(u8),
    /// The oldest store of a CPU's store buffer reaches memory.
    Drain(u8),
    /// An interrupt in flight reaches a CPU.
    Deliver(u8),
    /// A CPU translates a page speculatively.
    Fill(u8, u8),
    /// A CPU takes an NMI, whose handler reads a page of user memory if it is told that it may.
    Nmi(u8, u8),
    /// Something a CPU has issued takes effect: arm64's page-table store, TLBI on one CPU or write of TTBR0, x86's
    /// INVLPGB on one CPU.
    Effect(u8, u8),
    /// The hypervisor takes a vCPU off its CPU.
    Preempt(u8),
    /// The hypervisor does its next step with a vCPU that is off its CPU.
    Host(u8),
    /// The hypervisor refuses a hypercall for now.
    Refuse,
    /// The hypervisor stops a hypercall after a rep.
    Stop,
    /// x86: an interrupt that was sent before its request was published arrives too early.
    Early,
}

impl Choice {
    /// Whether it is a chance that the machine takes in the middle of an operation, not something to do next.
    pub(crate) const fn is_chance(self) -> bool {
        matches!(self, Self::Refuse | Self::Stop | Self::Early)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(cpu) => write!(f, "run {cpu}"),
            Self::Drain(cpu) => write!(f, "drain {cpu}"),
            Self::Deliver(cpu) => write!(f, "deliver {cpu}"),
            Self::Fill(cpu, page) => write!(f, "fill {cpu} {page}"),
            Self::Nmi(cpu, page) => write!(f, "nmi {cpu} {page}"),
            Self::Effect(cpu, which) => write!(f, "effect {cpu} {which}"),
            Self::Preempt(cpu) => write!(f, "preempt {cpu}"),
            Self::Host(cpu) => write!(f, "host {cpu}"),
            Self::Refuse => f.write_str("refuse"),
            Self::Stop => f.write_str("stop"),
            Self::Early => f.write_str("early"),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |index: usize| -> Result<u8, String> {
            let word = words
                .get(index)
                .ok_or_else(|| format!("`{text}` lacks a number"))?;
            word.parse()
                .map_err(|_| format!("`{word}` in `{text}` is no number"))
        };
        match words.first().copied() {
            Some("run") => Ok(Self::Run(number(1)?)),
            Some("drain") => Ok(Self::Drain(number(1)?)),
            Some("deliver") => Ok(Self::Deliver(number(1)?)),
            Some("fill") => Ok(Self::Fill(number(1)?, number(2)?)),
            Some("nmi") => Ok(Self::Nmi(number(1)?, number(2)?)),
            Some("effect") => Ok(Self::Effect(number(1)?, number(2)?)),
            Some("preempt") => Ok(Self::Preempt(number(1)?)),
            Some("host") => Ok(Self::Host(number(1)?)),
            Some("refuse") => Ok(Self::Refuse),
            Some("stop") => Ok(Self::Stop),
            Some("early") => Ok(Self::Early),
            _ => Err(format!("`{text}` is no choice")),
        }
    }
}

/// A scheduling point: the CPU that ran, which of its scenario's operations, and how many points into it. Keyed so,
/// leaving one choice or one operation out does not shift the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// The index of the CPU.
    pub cpu: u8,
    /// The operation of its scenario.
    pub section: u16,
    /// The scheduling point within it.
    pub step: u32,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.cpu, self.section, self.step)
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no point: it must look like 0.12.7");
        let mut parts = text.split('.');
        let mut part = || parts.next().ok_or_else(bad);
        let (cpu, section, step) = (part()?, part()?, part()?);
        Ok(Self {
            cpu: cpu.parse().map_err(|_| bad())?,
            section: section.parse().map_err(|_| bad())?,
            step: step.parse().map_err(|_| bad())?,
        })
    }
}

/// All choices of a run that differ from going on.
pub type Schedule = BTreeMap<Point, Vec<Choice>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_survive_printing() {
        let all = [
            Choice::Run(1),
            Choice::Drain(2),
            Choice::Deliver(3),
            Choice::Fill(4, 5),
            Choice::Nmi(6, 7),
            Choice::Effect(8, 9),
            Choice::Preempt(10),
            Choice::Host(11),
            Choice::Refuse,
            Choice::Stop,
            Choice::Early,
        ];
        for choice in all {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert!("run".parse::<Choice>().is_err());
        assert!("walk 1".parse::<Choice>().is_err());
    }

    #[test]
    fn points_survive_printing() {
        let point = Point {
            cpu: 3,
            section: 14,
            step: 159,
        };
        assert_eq!(point.to_string().parse(), Ok(point));
        assert!("3.1".parse::<Point>().is_err());
    }
}
