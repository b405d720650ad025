//! A stock Linux with KVM and a shell for it, from Debian packages that are unpacked here and not installed.

use crate::failure::Failure;
use crate::progress::Progress;
use crate::tool::Tool;
use qemu_test_runner::process::Group;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names the newest kernel of the release; small, for virtual machines, with KVM.
const KERNEL: &str = "linux-image-cloud-amd64";
const SHELL: &str = "busybox-static";
const LIMIT: Duration = Duration::from_secs(300);

/// What is needed of the packages.
#[derive(Debug, PartialEq, Eq)]
pub struct Linux {
    /// The kernel image.
    pub kernel: PathBuf,
    /// KVM's modules, in the order in which they are loaded.
    pub modules: Vec<PathBuf>,
    /// A statically linked busybox.
    pub busybox: PathBuf,
}

/// The modules of KVM on the processor that QEMU emulates, each after those it needs.
const MODULES: [&str; 3] = ["irqbypass", "kvm", "kvm-amd"];

impl Linux {
    /// Finds it under `directory`, or downloads it to there.
    ///
    /// # Errors
    /// Why the packages can't be had, or are not what they should be.
    pub fn get(directory: &Path) -> Result<Self, String> {
        let unpacked = directory.join("linux");
        if !unpacked.is_dir() {
            // Complete or not there: an interrupted download leaves nothing that would be taken for it.
            let partial = directory.join("linux.partial");
            download(&partial).map_err(|failure| failure.to_string())?;
            std::fs::rename(&partial, &unpacked)
                .map_err(Failure::file(&unpacked))
                .map_err(|failure| failure.to_string())?;
        }
        Self::find(&unpacked)
    }

    fn find(unpacked: &Path) -> Result<Self, String> {
        let files = files_below(unpacked);
        let find = |what: &str, matches: &dyn Fn(&str) -> bool| {
            let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
            let found = files
                .iter()
                .find(|path| name(path).is_some_and(|name| matches(&name)));
            found.cloned().ok_or(format!(
                "no {what} below {}; remove that directory to download it again",
                unpacked.display()
            ))
        };
        let module = |module: &&str| {
            // Newer releases compress them.
            let names = [format!("{module}.ko"), format!("{module}.ko.xz")];
            find(module, &|name| names.iter().any(|it| it == name))
        };
        Ok(Linux {
            kernel: find("kernel", &|name| name.starts_with("vmlinuz-"))?,
            modules: MODULES.iter().map(module).collect::<Result<_, _>>()?,
            busybox: find("busybox", &|name| name == "busybox")?,
        })
    }
}

fn download(directory: &Path) -> Result<(), Failure> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).map_err(Failure::file(directory))?;
    }
    std::fs::create_dir_all(directory).map_err(Failure::file(directory))?;
    let mut progress = Progress::begin("downloading a Linux with KVM");
    let outcome = fetch(directory, &mut progress).or_else(|failure| {
        // The index may be old or missing; who may not refresh it sees the first failure.
        let updated = Tool::new("apt-get update", LIMIT).run(Group::Shared, &mut progress);
        match updated {
            Ok(finished) if finished.succeeded() => fetch(directory, &mut progress),
            _ => Err(failure),
        }
    });
    progress.end();
    outcome
}

fn fetch(directory: &Path, progress: &mut Progress) -> Result<(), Failure> {
    let depends = Tool::new(&format!("apt-cache depends {KERNEL}"), LIMIT).env("LC_ALL", "C");
    let output = depends.output(progress)?;
    let kernel = dependency(&output).ok_or(Failure::Output {
        command: depends.line(),
        reason: "it names no kernel".into(),
    })?;
    Tool::new(&format!("apt-get download {kernel} {SHELL}"), LIMIT)
        .within(directory)
        .output(progress)?;
    let packages = std::fs::read_dir(directory).map_err(Failure::file(directory))?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|it| it == "deb");
    for package in packages.flatten().map(|it| it.path()).filter(is_package) {
        Tool::new("dpkg-deb --extract", LIMIT)
            .arg(package.display().to_string())
            .arg(directory.display().to_string())
            .output(progress)?;
        std::fs::remove_file(&package).map_err(Failure::file(&package))?;
    }
    Ok(())
}

/// The first package that another depends on, as `apt-cache depends` prints it.
fn dependency(output: &str) -> Option<&str> {
    output
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let entries = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::{Linux, dependency};
    use std::path::Path;

    #[test]
    fn the_kernel_is_what_the_metapackage_depends_on() {
        let output =
            "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-57-cloud-amd64\n  Suggests: x\n";
        assert_eq!(dependency(output), Some("linux-image-6.1.0-57-cloud-amd64"));
        assert_eq!(dependency("E: No packages found\n"), None);
    }

    #[test]
    fn says_what_an_incomplete_directory_lacks() {
        let reason = Linux::find(Path::new("/nonexistent")).expect_err("nothing is there");
        assert!(
            reason.starts_with("no kernel below /nonexistent"),
            "{reason}"
        );
    }
}
