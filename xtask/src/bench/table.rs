//! The figures as a table: a line per operation, a column per number of CPUs.

use super::figure::Figure;
use comfy_table::{CellAlignment, Table, presets};

/// All figures. Each cell is the cost, and the floor behind a stroke.
pub fn render(figures: &[Figure]) -> String {
    let most = figures.iter().map(|figure| figure.cpus).max().unwrap_or(0);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let titles = [
        "".to_string(),
        "backend".into(),
        "instructions / floor".into(),
    ];
    let columns = (1..=most).map(|cpus| match cpus {
        1 => "1 CPU".to_string(),
        _ => format!("{cpus} CPUs"),
    });
    table.set_header(titles.into_iter().chain(columns));
    let mut rows: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for figure in figures {
        let key = vec![figure.arch.clone(), figure.backend.clone(), name(figure)];
        let cell = match figure.floor {
            0 => figure.instructions.to_string(),
            floor => format!("{} / {floor}", figure.instructions),
        };
        let place = rows.iter().position(|(known, _)| *known == key);
        let place = place.unwrap_or_else(|| {
            rows.push((key, vec![String::new(); most as usize]));
            rows.len() - 1
        });
        rows[place].1[figure.cpus as usize - 1] = cell;
    }
    for (key, cells) in rows {
        table.add_row(key.into_iter().chain(cells));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn name(figure: &Figure) -> String {
    match (figure.op.as_str(), figure.pages) {
        ("flush", 1) => "flush 1 page".into(),
        ("flush", pages) => format!("flush {pages} pages"),
        ("flush_all", _) => "flush everything".into(),
        ("switch_other", _) => "switch to another space".into(),
        ("switch_same", _) => "switch to the same space".into(),
        ("lazy", _) => "lazy mode, in and out".into(),
        (other, _) => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::bench::figure::tests::figure;

    #[test]
    fn a_line_per_operation_and_a_column_per_number_of_cpus() {
        let text = render(&[
            figure("flush", 1, 1, 40, 20),
            figure("flush", 1, 2, 90, 60),
            figure("switch_same", 0, 1, 8, 0),
        ]);
        let line = |words: &str| {
            let found = text.lines().find(|line| line.contains(words));
            let words = found.expect("a line").split_whitespace();
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("flush"), "x86_64 ipi flush 1 page 40 / 20 90 / 60");
        assert_eq!(line("same"), "x86_64 ipi switch to the same space 8");
    }
}
