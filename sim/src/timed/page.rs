//! The page that shows what was measured, as Markdown beside its charts.

use std::{error::Error, fmt::Write, fs, path::Path};

use super::{costs::Costs, report};

/// Measures everything, and writes `virtual-time.md` and its charts into `directory`. `progress` is told what is being
/// measured.
///
/// # Errors
///
/// If a file can't be written.
pub fn write(directory: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), Box<dyn Error>> {
    let drawings = directory.join("virtual-time");
    fs::create_dir_all(&drawings)?;
    let mut page = String::from(HEAD);
    for chart in report::charts(progress) {
        chart.draw(&drawings)?;
        write!(
            page,
            "\n## {}\n\n![{}](virtual-time/{}.svg)\n\n{}\n",
            chart.title,
            chart.title,
            chart.file,
            chart.table()
        )?;
    }
    progress("scale");
    page.push_str(SCALE);
    for (cpus, cost) in report::scale() {
        let (latency, stolen) = (Costs::XEON.us(cost.latency), Costs::XEON.us(cost.stolen));
        writeln!(page, "| {cpus} | {latency:.2} | {stolen:.2} |")?;
    }
    progress("predicted and published");
    page.push_str(FINDINGS);
    for finding in report::findings() {
        writeln!(
            page,
            "| {} | {} | {} | {} |",
            finding.what, finding.predicted, finding.published, finding.because
        )?;
    }
    fs::write(directory.join("virtual-time.md"), page)?;
    Ok(())
}

const HEAD: &str = "\
# Virtual time

The shipping code on simulated CPUs whose operations cost what `sim/src/timed/costs.rs` says, each figure with its
source. Written by `cargo xtask bench sim`; two runs give the same page. Figures are microseconds.
";

const SCALE: &str = "
## A flush costs by the CPUs that use the space, not by the machine's

Flush of one page of a space that 4 CPUs use, `concurrent_ipi`.

| CPUs of the machine | until complete | taken from others |
|---|---|---|
";

const FINDINGS: &str = "
## Predicted and published

No parameter was chosen by looking at these figures. Where the model is off, the last column says why.

| what | predicted | published | difference |
|---|---|---|---|
";
