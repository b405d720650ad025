//! The readable trace of a run: one column a CPU.

use std::fmt::Write;

/// One line.
#[derive(Debug)]
struct Line {
    cpu: usize,
    text: String,
}

/// What happened, in order.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Vec<Line>,
}

impl Trace {
    /// Adds a line; what a CPU does not do itself (drains, deliveries, speculation) is marked.
    pub(crate) fn push(&mut self, cpu: usize, running: bool, text: String) {
        let text = if running { text } else { format!("~ {text}") };
        self.lines.push(Line { cpu, text });
    }

    /// The trace as text, each CPU's lines indented to its column.
    pub(crate) fn render(&self, numbers: &[usize]) -> String {
        const COLUMN: usize = 6;
        let mut out = String::new();
        for (index, line) in self.lines.iter().enumerate() {
            let indent = line.cpu * COLUMN;
            let number = numbers[line.cpu];
            let _ = writeln!(out, "{index:5} {:indent$}cpu{number}| {}", "", line.text);
        }
        out
    }
}
