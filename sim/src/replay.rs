//! Replay files: a spec and the choices that lead it to a broken contract, as text.
//!
//! ```text
//! # cpu1 may use page 0x1000 though a flush of it has completed
//! backend = ipi
//! cpus = 4
//! seed = 702
//! broken = SkipFlush
//! length = 3 0 5 0
//! skip = 0.1 2.4
//! at 0.3.7: deliver 1, run 1
//! ```

use std::{collections::BTreeSet, fmt::Write};

use crate::{
    choice::{Choice, Point, Schedule},
    scenario::{BackendKind, Spec},
    variants,
};

/// The text of a spec with a schedule.
pub fn print(spec: &Spec, message: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# {message}");
    let _ = writeln!(out, "backend = {}", spec.backend.name());
    let _ = writeln!(out, "cpus = {}", spec.cpus);
    let _ = writeln!(out, "seed = {}", spec.seed);
    if let Some(broken) = spec.broken {
        let _ = writeln!(out, "broken = {broken:?}");
    }
    if let Some(length) = &spec.length {
        let length: Vec<String> = length.iter().map(u16::to_string).collect();
        let _ = writeln!(out, "length = {}", length.join(" "));
    }
    if !spec.skip.is_empty() {
        let skip: Vec<String> = spec
            .skip
            .iter()
            .map(|(cpu, number)| format!("{cpu}.{number}"))
            .collect();
        let _ = writeln!(out, "skip = {}", skip.join(" "));
    }
    for (point, choices) in spec.schedule.iter().flatten() {
        let choices: Vec<String> = choices.iter().map(Choice::to_string).collect();
        let _ = writeln!(out, "at {point}: {}", choices.join(", "));
    }
    out
}

/// Reads what [`print()`] has written.
///
/// # Errors
///
/// Names the line that is wrong.
pub fn parse(text: &str) -> Result<Spec, String> {
    let mut spec = Spec::new(BackendKind::Ipi, 0, 0);
    let mut schedule = Schedule::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        parse_line(line, &mut spec, &mut schedule)
            .map_err(|error| format!("line {}: {error}", index + 1))?;
    }
    if !(1..=16).contains(&spec.cpus) {
        return Err(format!("cpus = {}: there must be 1 to 16", spec.cpus));
    }
    if spec
        .length
        .as_ref()
        .is_some_and(|length| length.len() != spec.cpus)
    {
        return Err(String::from("length must have a number for each CPU"));
    }
    spec.schedule = Some(schedule);
    Ok(spec)
}

fn parse_line(line: &str, spec: &mut Spec, schedule: &mut Schedule) -> Result<(), String> {
    if let Some(rest) = line.strip_prefix("at ") {
        let (point, choices) = rest.split_once(':').ok_or("a colon is missing")?;
        let point: Point = point.trim().parse()?;
        let choices: Result<Vec<Choice>, String> = choices.split(',').map(str::parse).collect();
        schedule.insert(point, choices?);
        return Ok(());
    }
    let (key, value) = line
        .split_once('=')
        .ok_or("it is neither `key = value` nor `at point: choices`")?;
    let value = value.trim();
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("`{text}` is no number"))
    };
    match key.trim() {
        "backend" => {
            spec.backend = BackendKind::from_name(value)
                .ok_or_else(|| format!("there is no backend `{value}`"))?;
        }
        "cpus" => spec.cpus = number(value)? as usize,
        "seed" => spec.seed = number(value)?,
        "broken" => {
            spec.broken = Some(
                variants::by_name(value).ok_or_else(|| format!("there is no variant `{value}`"))?,
            );
        }
        "length" => {
            let length: Result<Vec<u16>, String> = value
                .split_whitespace()
                .map(|word| Ok(number(word)? as u16))
                .collect();
            spec.length = Some(length?);
        }
        "skip" => {
            let skip: Result<BTreeSet<(u8, u16)>, String> = value
                .split_whitespace()
                .map(|word| {
                    let (cpu, op) = word
                        .split_once('.')
                        .ok_or_else(|| format!("`{word}` is no operation"))?;
                    Ok((number(cpu)? as u8, number(op)? as u16))
                })
                .collect();
            spec.skip = skip?;
        }
        other => return Err(format!("there is no key `{other}`")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_survives_printing() {
        let mut spec = Spec::new(BackendKind::Broadcast, 3, 77);
        spec.broken = variants::by_name("SkipFlush");
        spec.length = Some(vec![1, 0, 9]);
        spec.skip = BTreeSet::from([(0, 1), (2, 4)]);
        let at = Point {
            cpu: 2,
            section: 5,
            step: 8,
        };
        spec.schedule = Some(Schedule::from([(
            at,
            vec![Choice::Drain(1), Choice::Run(0)],
        )]));
        let text = print(&spec, "why");
        let read = parse(&text).unwrap();
        assert_eq!(print(&read, "why"), text);
        assert_eq!(read.schedule, spec.schedule);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse("cpus = 2\nseed = x").unwrap_err().contains("line 2"));
        assert!(parse("cpus = 0").unwrap_err().contains("1 to 16"));
        assert!(
            parse("cpus = 2\nlength = 1")
                .unwrap_err()
                .contains("each CPU")
        );
    }
}
