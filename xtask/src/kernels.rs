//! The example kernels.

use crate::failure::Failure;
use qemu_test_runner::machine::{Arch, Machine};
use std::time::Duration;

/// An example kernel.
#[derive(Debug)]
pub struct Kernel {
    /// What it runs on.
    pub arch: Arch,
    /// The backend it shows; also the name of its binary.
    pub backend: &'static str,
    /// The package it is in.
    pub package: &'static str,
}

const X86_64: &str = "shootdown-examples-x86_64";
const AARCH64: &str = "shootdown-examples-aarch64";

/// Every kernel, in the order they are shown.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        arch: Arch::X86_64,
        backend: "ipi",
        package: X86_64,
    },
    Kernel {
        arch: Arch::X86_64,
        backend: "concurrent_ipi",
        package: X86_64,
    },
    Kernel {
        arch: Arch::Aarch64,
        backend: "broadcast",
        package: AARCH64,
    },
    Kernel {
        arch: Arch::Aarch64,
        backend: "local",
        package: AARCH64,
    },
];

/// The kernels that measure.
pub const BENCHMARKS: &[Kernel] = &[Kernel {
    arch: Arch::X86_64,
    backend: "bench",
    package: X86_64,
}];

/// How long a kernel may run; each is done in seconds on an idle machine.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

impl Kernel {
    /// A name that is unique among all kernels.
    pub fn name(&self) -> String {
        format!("{}-{}", self.arch, self.backend)
    }

    /// The machine it is booted on.
    pub fn machine(&self, cpus: u32) -> Machine {
        Machine {
            cpus,
            ..Machine::new(self.arch)
        }
    }

    /// The words of its command line.
    pub fn words(&self, cpus: u32, break_flush: bool) -> Vec<String> {
        let mut words = Vec::new();
        if self.arch == Arch::Aarch64 {
            // Over semihosting the first word is the program's name.
            words.push(self.backend.to_string());
        }
        words.push(format!("cpus={cpus}"));
        if break_flush {
            words.push("break-flush".into());
        }
        words
    }
}

/// The kernels of an architecture, a backend, both, or all.
///
/// # Errors
/// If there are none; names those there are.
pub fn select(arch: Option<Arch>, backend: Option<&str>) -> Result<Vec<&'static Kernel>, Failure> {
    let matches = |kernel: &&Kernel| {
        arch.is_none_or(|arch| arch == kernel.arch)
            && backend.is_none_or(|backend| backend == kernel.backend)
    };
    let selected: Vec<_> = KERNELS.iter().filter(matches).collect();
    if selected.is_empty() {
        let names: Vec<_> = KERNELS
            .iter()
            .map(|kernel| format!("{} {}", kernel.arch, kernel.backend))
            .collect();
        return Err(Failure::Setup(format!(
            "no such kernel; there are: {}",
            names.join(", ")
        )));
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::{KERNELS, select};
    use qemu_test_runner::machine::Arch;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = KERNELS.iter().map(super::Kernel::name).collect();
        assert_eq!(names.len(), KERNELS.len());
    }

    #[test]
    fn selects_by_architecture_and_backend() {
        let count = |arch, backend| select(arch, backend).map(|kernels| kernels.len()).ok();
        assert_eq!(count(None, None), Some(KERNELS.len()));
        assert_eq!(count(Some(Arch::X86_64), Some("ipi")), Some(1));
        assert_eq!(count(None, Some("broadcast")), Some(1));
        assert_eq!(count(Some(Arch::X86_64), Some("broadcast")), None);
    }

    #[test]
    fn each_architecture_has_its_command_line() {
        let words = |arch, backend| {
            select(Some(arch), Some(backend)).map(|kernels| kernels[0].words(3, true))
        };
        assert_eq!(
            words(Arch::X86_64, "ipi").ok(),
            Some(vec!["cpus=3".into(), "break-flush".into()])
        );
        let arm = words(Arch::Aarch64, "broadcast").ok();
        assert_eq!(
            arm,
            Some(vec![
                "broadcast".into(),
                "cpus=3".into(),
                "break-flush".into()
            ])
        );
    }
}
