//! The emulated machines: QEMU's command line for each architecture.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What apt installs for both architectures. `qemu-utils` is named because apt might otherwise remove a newer one.
pub const APT_PACKAGES: [&str; 3] = ["qemu-system-x86", "qemu-system-arm", "qemu-utils"];

/// An architecture that kernels are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Arch {
    /// 64-bit x86.
    #[value(name = "x86_64")]
    X86_64,
    /// 64-bit Arm.
    #[value(name = "aarch64")]
    Aarch64,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

    /// The name of QEMU's system emulator.
    pub fn qemu(self) -> &'static str {
        match self {
            Arch::X86_64 => "qemu-system-x86_64",
            Arch::Aarch64 => "qemu-system-aarch64",
        }
    }

    /// The Rust target of the kernels.
    pub fn target(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-unknown-none",
            Arch::Aarch64 => "aarch64-unknown-none",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        })
    }
}

/// How TCG runs the virtual CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Threading {
    /// All on one host thread, in turns: fast and steady on a small host.
    Single,
    /// A host thread each: real parallelism.
    Multi,
}

/// An emulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The architecture.
    pub arch: Arch,
    /// The emulator, looked up in `PATH` if it is a bare name.
    pub qemu: PathBuf,
    /// QEMU's name of the CPU model, with feature flags if wanted (`max,-x2apic`).
    pub cpu: String,
    /// The number of CPUs.
    pub cpus: u32,
    /// How the CPUs run.
    pub threading: Threading,
    /// Options added to `-M`, separated by commas (`virtualization=on`).
    pub options: Option<String>,
    /// Arguments added to QEMU's command line.
    pub extra: Vec<String>,
}

impl Machine {
    /// A machine with 4 CPUs of the model `max` on one host thread.
    pub fn new(arch: Arch) -> Self {
        Machine {
            arch,
            qemu: arch.qemu().into(),
            cpu: "max".into(),
            cpus: 4,
            threading: Threading::Single,
            options: None,
            extra: Vec::new(),
        }
    }

    /// QEMU's arguments for booting `kernel` with the words of its command line.
    pub fn arguments(&self, kernel: &Path, words: &[String]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut push = |text: &str| arguments.extend(text.split(' ').map(OsString::from));
        let options = self
            .options
            .as_ref()
            .map(|options| format!(",{options}"))
            .unwrap_or_default();
        match self.arch {
            Arch::X86_64 => {
                push(&format!(
                    "-M pc{options} -nodefaults -no-user-config -display none -no-reboot"
                ));
                push("-debugcon stdio -device isa-debug-exit,iobase=0xf4,iosize=4");
            }
            Arch::Aarch64 => {
                push(&format!(
                    "-M virt,gic-version=3{options} -nodefaults -no-user-config -display none"
                ));
                push("-no-reboot -serial null");
            }
        }
        let threading = match self.threading {
            Threading::Single => "single",
            Threading::Multi => "multi",
        };
        push(&format!(
            "-m 128M -accel tcg,thread={threading} -cpu {} -smp {}",
            self.cpu, self.cpus
        ));
        match self.arch {
            Arch::X86_64 => {
                if !words.is_empty() {
                    arguments.extend(["-append".into(), words.join(" ").into()]);
                }
            }
            Arch::Aarch64 => {
                let mut semihosting = String::from("enable=on,target=native");
                for word in words {
                    // QEMU's option syntax: a comma inside a value is doubled.
                    semihosting.push_str(&format!(",arg={}", word.replace(',', ",,")));
                }
                arguments.extend(["-semihosting-config".into(), semihosting.into()]);
            }
        }
        arguments.extend(self.extra.iter().map(OsString::from));
        arguments.extend(["-kernel".into(), kernel.into()]);
        arguments
    }

    /// The command that boots `kernel`.
    pub fn command(&self, kernel: &Path, words: &[String]) -> Command {
        let mut command = Command::new(&self.qemu);
        command.args(self.arguments(kernel, words));
        command
    }

    /// The same command as a line for a shell.
    pub fn shell_line(&self, kernel: &Path, words: &[String]) -> String {
        let arguments = self.arguments(kernel, words);
        let all =
            std::iter::once(self.qemu.as_os_str()).chain(arguments.iter().map(OsString::as_os_str));
        shell_words::join(all.map(|word| word.to_string_lossy()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Arch, Machine, Threading};
    use std::path::Path;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn x86_64_takes_its_command_line_from_append() {
        let line = Machine::new(Arch::X86_64)
            .shell_line(Path::new("k.elf"), &words(&["cpus=4", "break-flush"]));
        assert_eq!(
            line,
            "qemu-system-x86_64 -M pc -nodefaults -no-user-config -display none -no-reboot -debugcon stdio \
             -device 'isa-debug-exit,iobase=0xf4,iosize=4' -m 128M -accel 'tcg,thread=single' -cpu max -smp 4 \
             -append 'cpus=4 break-flush' -kernel k.elf"
        );
    }

    #[test]
    fn aarch64_takes_its_command_line_from_semihosting() {
        let machine = Machine {
            cpus: 2,
            threading: Threading::Multi,
            options: Some("virtualization=on".into()),
            ..Machine::new(Arch::Aarch64)
        };
        let arguments = machine.arguments(Path::new("k.elf"), &words(&["run_addr", "1,2"]));
        let has = |text: &str| arguments.iter().any(|argument| argument == text);
        assert!(has("virt,gic-version=3,virtualization=on"));
        assert!(has("tcg,thread=multi"));
        assert!(has("enable=on,target=native,arg=run_addr,arg=1,,2"));
    }

    #[test]
    fn extra_arguments_precede_the_kernel() {
        let machine = Machine {
            extra: words(&["-icount", "shift=0"]),
            ..Machine::new(Arch::X86_64)
        };
        assert!(
            machine
                .shell_line(Path::new("a b"), &[])
                .ends_with("-icount 'shift=0' -kernel 'a b'")
        );
    }
}
