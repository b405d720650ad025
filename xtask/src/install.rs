//! Installs what a command needs and the machine lacks. Does nothing, and needs no network, where nothing is missing.

mod apt;
mod rust;

use crate::failure::Failure;
use crate::kernels::Kernel;
use crate::tool::Tool;
use qemu_test_runner::machine::Arch;
use std::time::Duration;

/// The bare-metal target without floating point, which the crate itself is also built for.
pub const SOFTFLOAT: &str = "aarch64-unknown-none-softfloat";

/// What a command needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Rust targets.
    pub targets: Vec<&'static str>,
    /// Rust components, by the name of their cargo command and of the component.
    pub components: Vec<(&'static str, &'static str)>,
    /// Architectures to emulate.
    pub emulators: Vec<Arch>,
}

impl Needs {
    /// For building `kernels`.
    pub fn to_build_kernels<'a>(kernels: impl Iterator<Item = &'a Kernel>) -> Self {
        let mut needs = Needs::default();
        for target in kernels.map(|kernel| kernel.arch.target()) {
            if !needs.targets.contains(&target) {
                needs.targets.push(target);
            }
        }
        needs
    }

    /// For building and booting `kernels`.
    pub fn to_boot_kernels<'a>(kernels: impl Iterator<Item = &'a Kernel> + Clone) -> Self {
        let needs = Needs::to_build_kernels(kernels.clone());
        let is_used = |arch: &Arch| kernels.clone().any(|kernel| kernel.arch == *arch);
        Needs {
            emulators: Arch::ALL.into_iter().filter(is_used).collect(),
            ..needs
        }
    }

    /// For checking everything.
    pub fn everything() -> Self {
        let mut targets: Vec<_> = Arch::ALL.iter().map(|arch| arch.target()).collect();
        targets.push(SOFTFLOAT);
        Needs {
            targets,
            components: vec![("fmt", "rustfmt"), ("clippy", "clippy")],
            emulators: Arch::ALL.to_vec(),
        }
    }

    /// What of it the machine lacks.
    fn missing(&self) -> Self {
        Needs {
            targets: rust::missing_targets(&self.targets),
            components: self
                .components
                .iter()
                .copied()
                .filter(|(command, _)| !rust::has_command(command))
                .collect(),
            emulators: self
                .emulators
                .iter()
                .copied()
                .filter(|arch| !has_emulator(*arch))
                .collect(),
        }
    }
}

/// Installs what is missing.
///
/// # Errors
/// If something is missing and can't be installed from here: says what to run.
pub fn install(needs: &Needs) -> Result<(), Failure> {
    let missing = needs.missing();
    rust::install(&missing.targets, &missing.components)?;
    if !missing.emulators.is_empty() {
        apt::install_qemu()?;
    }
    let still = needs.missing();
    if still == Needs::default() {
        return Ok(());
    }
    Err(Failure::Setup(format!(
        "still missing after the installation: {still:?}"
    )))
}

fn has_emulator(arch: Arch) -> bool {
    Tool::new(
        &format!("{} --version", arch.qemu()),
        Duration::from_secs(30),
    )
    .succeeds()
}

#[cfg(test)]
mod tests {
    use super::Needs;
    use crate::kernels::{KERNELS, select};
    use qemu_test_runner::machine::Arch;

    #[test]
    fn a_kernel_needs_its_own_target_and_emulator_only() {
        let kernels = select(Some(Arch::Aarch64), None).expect("there is one");
        let needs = Needs::to_boot_kernels(kernels.into_iter());
        let expected = Needs {
            targets: vec!["aarch64-unknown-none"],
            emulators: vec![Arch::Aarch64],
            ..Needs::default()
        };
        assert_eq!(needs, expected);
    }

    #[test]
    fn images_need_no_emulator() {
        let needs = Needs::to_build_kernels(KERNELS.iter());
        assert_eq!(
            needs.targets,
            ["x86_64-unknown-none", "aarch64-unknown-none"]
        );
        assert!(needs.emulators.is_empty());
    }
}
