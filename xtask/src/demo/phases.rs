//! What a kernel counted phase by phase: the `invlpgb` kernel, for spaces that few and that many CPUs run.

use super::counts::{Numbers, Phase};
use super::table::Row;
use comfy_table::{CellAlignment, Table, presets};

type Line = (&'static str, fn(&Phase) -> u64, &'static str);

const LINES: [Line; 8] = [
    ("cpus", |p| p.cpus, "CPUs that ran the space"),
    ("global PCID", |p| p.tag, "0: the space has none"),
    ("flushes", |p| p.flushes, "flushes of it"),
    ("ipis_sent", |p| p.ipis_sent, "interrupts sent"),
    ("broadcasts", |p| p.broadcasts, "INVLPGBs"),
    ("reads", |p| p.reads, "reads whose result was verified"),
    ("stale", |p| p.stale, "those that were stale"),
    (
        "stale elsewhere",
        |p| p.stale_elsewhere,
        "those on another CPU than the change",
    ),
];

/// A table with a column for each phase of a kernel, if there are phases.
pub fn render(row: &Row) -> Option<String> {
    let phases = &row.counts.as_ref()?.numbers.phases;
    if phases.is_empty() {
        return None;
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let mut header = vec![row.name().replace('\n', " ") + ":\na space run by"];
    header.extend(phases.iter().map(|phase| format!("\n{}", phase.name)));
    header.push("\nmeaning".into());
    table.set_header(header);
    for (title, number, meaning) in LINES {
        let mut cells = vec![title.to_string()];
        cells.extend(phases.iter().map(|phase| number(phase).to_string()));
        cells.push(meaning.into());
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1).take(phases.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    Some(table.trim_fmt())
}

/// Judges the phases of a kernel that broadcasts: a space that few CPUs run is flushed by interrupts, one that many run by
/// broadcast alone. Where an instruction of the broadcast is skipped, only the latter must notice.
pub fn judge(numbers: &Numbers, broken: Option<&str>) -> Result<(), String> {
    if numbers.backend != "invlpgb" || numbers.cpus < 2 {
        return Ok(());
    }
    let phase = |name: &str| {
        let found = numbers.phases.iter().find(|phase| phase.name == name);
        found.ok_or(format!("the run has no phase `{name}`"))
    };
    let (few, many) = (phase("few")?, phase("many")?);
    phase("after reset")?;
    // One CPU has nobody to interrupt.
    if few.tag != 0 || few.broadcasts != 0 || (few.ipis_sent == 0 && few.cpus > 1) {
        return Err(
            "a space that few CPUs run has a global PCID, or was not flushed by interrupts".into(),
        );
    }
    if many.tag == 0 || many.broadcasts == 0 || many.ipis_sent != 0 {
        return Err(format!(
            "a space that many CPUs run: global PCID {}, {} INVLPGBs, {} interrupts",
            many.tag, many.broadcasts, many.ipis_sent
        ));
    }
    let noticed = numbers.phases.iter().any(|phase| phase.stale > 0);
    match broken {
        None if noticed => Err("stale reads in a phase".into()),
        Some(_) if many.stale_elsewhere == 0 => {
            Err("no other CPU noticed that the broadcast was broken".into())
        }
        Some(word) if word.contains('=') && few.stale > 0 => {
            Err("interrupts need no INVLPGB, but something was stale without it".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{judge, render};
    use crate::demo::counts::{Numbers, Phase, tests::counts};
    use crate::demo::table::Row;
    use crate::kernels::KERNELS;
    use qemu_test_runner::ended::Report;
    use std::time::Duration;

    const NO_SYNC: Option<&str> = Some("break-flush=tlbsync");

    fn phase(name: &str, tag: u64, ipis_sent: u64, broadcasts: u64, stale: u64) -> Phase {
        Phase {
            name: name.into(),
            cpus: 3,
            tag,
            flushes: 100,
            ipis_sent,
            broadcasts,
            reads: 1000,
            stale,
            stale_elsewhere: stale,
        }
    }

    /// With `stale` reads where there is broadcast.
    fn numbers(stale: u64) -> Numbers {
        Numbers {
            backend: "invlpgb".into(),
            phases: vec![
                phase("few", 0, 200, 0, 0),
                phase("many", 7, 0, 100, stale),
                phase("after reset", 7, 9, 100, stale),
            ],
            ..counts(stale).numbers
        }
    }

    #[test]
    fn few_by_interrupts_many_by_broadcast() {
        assert_eq!(judge(&numbers(0), None), Ok(()));
        for (index, wrong) in [
            (0, phase("few", 7, 200, 0, 0)),
            (0, phase("few", 0, 0, 0, 0)),
            (0, phase("few", 0, 200, 1, 0)),
            (1, phase("many", 0, 0, 100, 0)),
            (1, phase("many", 7, 1, 100, 0)),
            (1, phase("many", 7, 0, 0, 0)),
            (2, phase("another", 7, 9, 100, 0)),
            (2, phase("after reset", 7, 9, 100, 1)),
        ] {
            let mut numbers = numbers(0);
            numbers.phases[index] = wrong.clone();
            assert!(judge(&numbers, None).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn without_an_instruction_only_broadcast_is_stale() {
        assert_eq!(judge(&numbers(5), NO_SYNC), Ok(()));
        assert!(judge(&numbers(0), NO_SYNC).is_err());
        let mut all = numbers(5);
        all.phases[0].stale = 1;
        assert!(judge(&all, NO_SYNC).is_err());
        assert_eq!(judge(&all, Some("break-flush")), Ok(()));
    }

    #[test]
    fn other_kernels_have_no_phases() {
        assert_eq!(judge(&counts(0).numbers, None), Ok(()));
        let alone = Numbers {
            cpus: 1,
            phases: Vec::new(),
            ..numbers(0)
        };
        assert_eq!(judge(&alone, None), Ok(()));
    }

    #[test]
    fn every_phase_has_a_column() {
        let mut row = Row {
            kernel: &KERNELS[0],
            broken: NO_SYNC,
            counts: Some(counts(0)),
            report: Report::Passed,
            verdict: Ok(()),
            took: Duration::ZERO,
        };
        assert!(render(&row).is_none());
        row.counts.as_mut().expect("set above").numbers = numbers(3);
        let text = render(&row).expect("there are phases");
        let line = text
            .lines()
            .find(|line| line.contains("ipis_sent"))
            .expect("a line");
        let words: Vec<_> = line.split_whitespace().take(4).collect();
        assert_eq!(words, ["ipis_sent", "200", "0", "9"]);
        assert!(text.contains("without tlbsync") && text.contains("few"));
    }
}
