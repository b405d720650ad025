//! Progress on standard error: a spinner on a terminal, plain lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a long piece of work gives a sign of life where there is no terminal.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// A piece of work that goes on.
#[derive(Debug)]
pub struct Progress {
    label: String,
    bar: Option<ProgressBar>,
    began: Instant,
    shown: Instant,
}

impl Progress {
    /// Shows that `label` begins.
    pub fn begin(label: impl Into<String>) -> Self {
        let label = label.into();
        let bar = std::io::stderr().is_terminal().then(|| spinner(&label));
        if bar.is_none() {
            eprintln!("{label} ...");
        }
        let began = Instant::now();
        Progress {
            label,
            bar,
            began,
            shown: began,
        }
    }

    /// Shows the latest line of output, unless it is JSON.
    pub fn line(&mut self, line: &str) {
        if line.starts_with('{') {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_message(line.trim().to_string());
        } else if self.shown.elapsed() > SIGN_OF_LIFE {
            self.shown = Instant::now();
            eprintln!(
                "{} ... {} s: {}",
                self.label,
                self.began.elapsed().as_secs(),
                line.trim()
            );
        }
    }

    /// Takes the spinner away.
    pub fn end(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn spinner(label: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_prefix(label.to_string());
    // The template is a constant and well-formed; without a style the spinner still turns.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
