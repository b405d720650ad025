//! Where KVM is to be had: on this machine, or in a machine that QEMU emulates.

use std::fs::OpenOptions;
use std::path::Path;

/// Where the guests run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this machine.
    Here,
    /// In an emulated machine, and why not on this one.
    Emulated(String),
}

/// What this machine has.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// `/dev/kvm` can be opened for reading and writing.
    pub device: bool,
    /// The modules of the kernel, as far as their names begin with `kvm`.
    pub modules: Vec<String>,
    /// KVM's tracepoints can be turned on.
    pub tracepoints: bool,
    /// The number of CPUs.
    pub cpus: usize,
}

/// KVM on a processor's own virtualization. Others are no test: one that keeps shadow page tables in software, as
/// `kvm_pvm` does, flushes on its own and so never shows a stale translation.
const HARDWARE: [&str; 2] = ["kvm_amd", "kvm_intel"];
/// The other modules that belong to KVM itself.
const NEUTRAL: [&str; 1] = ["kvm"];

impl Machine {
    /// Looks around.
    pub fn look() -> Self {
        let modules = std::fs::read_dir("/sys/module").into_iter().flatten();
        let modules = modules
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("kvm"))
            .collect();
        let filter = Path::new(TRACING).join("events/kvm/kvm_pv_tlb_flush/filter");
        Machine {
            device: can_open(Path::new("/dev/kvm")),
            modules,
            tracepoints: can_open(&filter),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Where to run the guests.
    pub fn place(&self) -> Place {
        let foreign = self
            .modules
            .iter()
            .find(|name| !HARDWARE.contains(&name.as_str()) && !NEUTRAL.contains(&name.as_str()));
        let hardware = self
            .modules
            .iter()
            .any(|name| HARDWARE.contains(&name.as_str()));
        let reason = match (self.device, foreign, hardware) {
            (false, ..) => "/dev/kvm is not there or can't be opened".into(),
            (true, Some(module), _) => {
                format!("/dev/kvm is that of {module}, which never shows a stale translation")
            }
            (true, None, false) => "nobody knows what /dev/kvm stands on".into(),
            (true, None, true) if !self.tracepoints => {
                "KVM's tracepoints can't be turned on by this user".into()
            }
            (true, None, true) if self.cpus < 2 => "this machine has one CPU only".into(),
            (true, None, true) => return Place::Here,
        };
        Place::Emulated(reason)
    }
}

/// Where tracefs is mounted, on this machine and in the emulated one.
pub const TRACING: &str = "/sys/kernel/tracing";

fn can_open(path: &Path) -> bool {
    OpenOptions::new().read(true).write(true).open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{Machine, Place};

    fn machine(modules: &[&str]) -> Machine {
        Machine {
            device: true,
            modules: modules.iter().map(ToString::to_string).collect(),
            tracepoints: true,
            cpus: 2,
        }
    }

    #[test]
    fn hardware_is_used() {
        assert_eq!(machine(&["kvm", "kvm_amd"]).place(), Place::Here);
        assert_eq!(machine(&["kvm", "kvm_intel"]).place(), Place::Here);
    }

    #[test]
    fn everything_else_is_not_and_says_why() {
        let amd = || machine(&["kvm", "kvm_amd"]);
        for (machine, word) in [
            (machine(&["kvm", "kvm_pvm"]), "kvm_pvm"),
            (machine(&["kvm", "kvm_amd", "kvm_pvm"]), "kvm_pvm"),
            (machine(&["kvm"]), "stands on"),
            (machine(&[]), "stands on"),
            (
                Machine {
                    device: false,
                    ..amd()
                },
                "opened",
            ),
            (
                Machine {
                    tracepoints: false,
                    ..amd()
                },
                "tracepoints",
            ),
            (Machine { cpus: 1, ..amd() }, "one CPU"),
        ] {
            let Place::Emulated(reason) = machine.place() else {
                panic!("{machine:?} is used");
            };
            assert!(reason.contains(word), "{reason}");
        }
    }
}
