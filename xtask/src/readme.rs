//! The parts of the README that are written by a run and never by hand.

use crate::failure::Failure;
use crate::project;

/// Puts `text` between the markers of the part `name`.
///
/// # Errors
/// If the README can't be read or written, or lacks the markers.
pub fn write(name: &str, text: &str) -> Result<(), Failure> {
    let path = project::root().join("README.md");
    let readme = std::fs::read_to_string(&path).map_err(Failure::file(&path))?;
    let readme = replace(&readme, name, text).ok_or_else(|| Failure::Output {
        command: path.display().to_string(),
        reason: format!("it lacks the lines {} and {}", begin(name), end(name)),
    })?;
    std::fs::write(&path, readme).map_err(Failure::file(&path))
}

fn begin(name: &str) -> String {
    format!("<!-- {name}: written by `cargo xtask {name} --write` -->")
}

fn end(name: &str) -> String {
    format!("<!-- {name}: end -->")
}

fn replace(readme: &str, name: &str, text: &str) -> Option<String> {
    let (before, rest) = readme.split_once(&begin(name))?;
    let (_, after) = rest.split_once(&end(name))?;
    Some(format!(
        "{before}{}\n{}\n{}{after}",
        begin(name),
        text.trim_end(),
        end(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::{begin, end, replace};

    #[test]
    fn replaces_what_stands_between_the_markers() {
        let (begin, end) = (begin("demo"), end("demo"));
        let readme = format!("a\n{begin}\nold\n{end}\nb\n");
        let new = replace(&readme, "demo", "new\n");
        assert_eq!(new, Some(format!("a\n{begin}\nnew\n{end}\nb\n")));
        assert_eq!(replace(&readme, "bench", "new"), None);
    }
}
