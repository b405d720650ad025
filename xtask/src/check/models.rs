//! What the installed emulators can do.

use crate::tool::Tool;
use qemu_test_runner::machine::Arch;
use std::collections::HashSet;
use std::time::Duration;

const QUERY: Duration = Duration::from_secs(30);

/// The versions and CPU models of the installed emulators.
#[derive(Debug)]
pub struct Models {
    emulators: Vec<(Arch, String, HashSet<String>)>,
}

impl Models {
    /// Asks each emulator.
    pub fn of_installed() -> Self {
        let ask = |arch: Arch| {
            let query = |option: &str| {
                Tool::new(&format!("{} {option}", arch.qemu()), QUERY).quiet_output()
            };
            let version = query("--version").unwrap_or_default();
            (
                arch,
                version_number(&version),
                words(&query("-cpu help").unwrap_or_default()),
            )
        };
        Models {
            emulators: Arch::ALL.into_iter().map(ask).collect(),
        }
    }

    /// Whether the emulator of `arch` knows a model; feature flags after a comma are not looked at.
    pub fn has(&self, arch: Arch, model: &str) -> bool {
        let name = model.split(',').next().unwrap_or(model);
        self.emulators
            .iter()
            .any(|(of, _, models)| *of == arch && models.contains(name))
    }

    /// The version of each emulator.
    pub fn versions(&self) -> String {
        let versions: Vec<_> = self
            .emulators
            .iter()
            .map(|(arch, version, _)| format!("{arch} {version}"))
            .collect();
        versions.join(", ")
    }
}

fn version_number(version: &str) -> String {
    let first = version.lines().next().unwrap_or_default();
    first
        .split_whitespace()
        .skip_while(|word| *word != "version")
        .nth(1)
        .unwrap_or("of unknown version")
        .into()
}

fn words(help: &str) -> HashSet<String> {
    help.split_whitespace().map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::{Models, version_number, words};
    use qemu_test_runner::machine::Arch;

    #[test]
    fn knows_what_the_emulator_lists() {
        let help = "Available CPUs:\nx86 qemu64                QEMU Virtual CPU version 2.5+\n  cortex-a72\n";
        let models = Models {
            emulators: vec![(Arch::X86_64, "7.2".into(), words(help))],
        };
        assert!(models.has(Arch::X86_64, "qemu64,-x2apic"));
        assert!(models.has(Arch::X86_64, "cortex-a72"));
        assert!(!models.has(Arch::X86_64, "max"));
        assert!(!models.has(Arch::Aarch64, "cortex-a72"));
        assert_eq!(models.versions(), "x86_64 7.2");
    }

    #[test]
    fn reads_the_version() {
        assert_eq!(
            version_number("QEMU emulator version 10.0.2 (Debian 1:10)\nCopyright"),
            "10.0.2"
        );
        assert_eq!(version_number(""), "of unknown version");
    }
}
