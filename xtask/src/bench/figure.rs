//! One figure of a benchmark kernel.

use serde::Deserialize;

/// What an operation costs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The architecture.
    pub arch: String,
    /// The backend.
    pub backend: String,
    /// What was done.
    pub op: String,
    /// Pages of a flush; 0 for everything, and where there are none.
    pub pages: u64,
    /// CPUs that took part.
    pub cpus: u64,
    /// The median cost in instructions, of all CPUs together.
    pub instructions: u64,
    /// The same without any protocol.
    pub floor: u64,
}

impl Figure {
    /// How many times the floor; none where that is 0.
    pub fn ratio(&self) -> Option<f64> {
        (self.floor != 0).then(|| self.instructions as f64 / self.floor as f64)
    }

    /// As a line of JSON.
    pub fn json(&self) -> String {
        let Self {
            arch,
            backend,
            op,
            pages,
            cpus,
            instructions,
            floor,
        } = self;
        let ratio = match self.ratio() {
            Some(ratio) => format!("{ratio:.2}"),
            None => "null".into(),
        };
        format!(
            r#"{{"arch":"{arch}","backend":"{backend}","op":"{op}","pages":{pages},"cpus":{cpus},"instructions":{instructions},"floor":{floor},"ratio":{ratio}}}"#
        )
    }
}

/// The figures in a kernel's output; the error says what is wrong with it.
pub fn find(output: &str) -> Result<Vec<Figure>, String> {
    let lines = output.lines().map(str::trim);
    let figures: Result<Vec<Figure>, String> = lines
        .filter(|line| line.starts_with('{'))
        .map(|line| {
            serde_json::from_str(line).map_err(|error| format!("malformed figure: {error}: {line}"))
        })
        .collect();
    match figures {
        Ok(figures) if figures.is_empty() => Err("the kernel printed no figure".into()),
        figures => figures,
    }
}

#[cfg(test)]
pub mod tests {
    use super::{Figure, find};

    pub fn figure(op: &str, pages: u64, cpus: u64, instructions: u64, floor: u64) -> Figure {
        Figure {
            arch: "x86_64".into(),
            backend: "ipi".into(),
            op: op.into(),
            pages,
            cpus,
            instructions,
            floor,
        }
    }

    const LINE: &str = r#"{"arch":"x86_64","backend":"ipi","op":"flush","pages":1,"cpus":4,"instructions":300,"floor":200}"#;

    #[test]
    fn finds_figures_between_other_lines() {
        let figures = find(&format!("booting\r\n{LINE}\r\nbye")).expect("there is one");
        assert_eq!(figures, [figure("flush", 1, 4, 300, 200)]);
    }

    #[test]
    fn refuses_what_is_missing_or_malformed() {
        assert!(find("booting").is_err());
        assert!(find(&LINE[..60]).is_err());
    }

    #[test]
    fn the_ratio_is_added() {
        assert!(
            figure("flush", 1, 4, 300, 200)
                .json()
                .ends_with(r#""floor":200,"ratio":1.50}"#)
        );
        assert!(
            figure("switch_same", 0, 1, 8, 0)
                .json()
                .ends_with(r#""ratio":null}"#)
        );
    }
}
