//! The machine with SVM that QEMU emulates.

use super::packages::Linux;
use std::path::Path;
use std::process::Command;

/// QEMU's command for it: two CPUs that run in parallel. What is to be judged comes out of it on standard output, what
/// its kernel says goes to the file `console`.
pub fn command(linux: &Linux, initramfs: &Path, console: &Path) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    // Without CMPXCHG16B: QEMU 7.2 leaves wrong flags after it.
    let line = "-M q35 -nodefaults -no-user-config -display none -no-reboot -m 2G -smp 2 -cpu EPYC-v3,-cx16 \
                -accel tcg,thread=multi,tb-size=512 -serial stdio -append";
    command.args(line.split_whitespace());
    // Mitigations cost time, and there is nothing to protect.
    command.arg("console=ttyS1 quiet panic=-1 mitigations=off nokaslr tsc=reliable");
    let serial = format!("file:{}", console.display());
    command.args(["-serial", &serial]);
    command.arg("-kernel").arg(&linux.kernel);
    command.arg("-initrd").arg(initramfs);
    command
}
