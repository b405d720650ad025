//! QEMU, through apt.

use crate::failure::Failure;
use crate::progress::Progress;
use crate::tool::Tool;
use qemu_test_runner::machine::APT_PACKAGES;
use qemu_test_runner::process::Group;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);
const OS_RELEASE: &str = "/etc/os-release";

/// Installs the emulators.
///
/// # Errors
/// If this user may not, there is no apt, or apt fails: says what to run.
pub fn install_qemu() -> Result<(), Failure> {
    let root = rustix::process::geteuid().is_root();
    let has_apt = Tool::new("apt-get --version", Duration::from_secs(60)).succeeds();
    may_install(root, has_apt).map_err(Failure::Setup)?;

    // An index that can't be refreshed in part may still do; if not, the installation says so.
    let _ = apt(UPDATE)?;
    let first = install_line(None);
    let Err(failure) = apt(&first)? else {
        return Ok(());
    };
    if !conflicts_with_backport(&failure.to_string()) {
        return Err(failure);
    }
    let os_release =
        std::fs::read_to_string(OS_RELEASE).map_err(Failure::file(Path::new(OS_RELEASE)))?;
    let Some(codename) = debian_codename(&os_release) else {
        return Err(failure);
    };
    let source = Source::of(&codename);
    eprintln!(
        "a newer qemu-utils is installed: adding {} ({})",
        source.path, source.line
    );
    std::fs::write(&source.path, format!("{}\n", source.line))
        .map_err(Failure::file(Path::new(&source.path)))?;
    let _ = apt(UPDATE)?;
    apt(&install_line(Some(&codename)))?
}

const UPDATE: &str = "apt-get update";

/// Runs apt; the inner failure is apt's own, the outer one that it could not be started.
fn apt(line: &str) -> Result<Result<(), Failure>, Failure> {
    // apt's messages are read below, so they must not be translated; another apt may hold the lock for a while.
    let tool = Tool::new(&format!("{line} -o DPkg::Lock::Timeout=120"), LIMIT)
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive");
    let mut progress = Progress::begin(format!("installing QEMU: {line}"));
    let finished = tool.run(Group::Shared, &mut progress);
    progress.end();
    let finished = finished?;
    Ok(if finished.succeeded() {
        Ok(())
    } else {
        Err(tool.failure(&finished))
    })
}

fn install_line(backports_of: Option<&str>) -> String {
    let release = backports_of
        .map(|codename| format!("-t {codename}-backports "))
        .unwrap_or_default();
    format!(
        "apt-get install -y --no-install-recommends {release}{}",
        APT_PACKAGES.join(" ")
    )
}

fn may_install(root: bool, has_apt: bool) -> Result<(), String> {
    match (has_apt, root) {
        (true, true) => Ok(()),
        (true, false) => Err(format!(
            "QEMU is missing; run as root: {UPDATE} && {}",
            install_line(None)
        )),
        (false, _) => Err(
            "QEMU is missing and there is no apt-get; install qemu-system-x86_64 and \
                           qemu-system-aarch64, version 7.2 or newer"
                .into(),
        ),
    }
}

/// Whether apt refused because qemu-utils is installed from backports, which the stable emulators conflict with.
fn conflicts_with_backport(output: &str) -> bool {
    output
        .lines()
        .any(|line| line.contains("qemu-utils") && line.contains("Breaks: qemu-system"))
}

/// The release's codename, if it is a Debian.
fn debian_codename(os_release: &str) -> Option<String> {
    let value = |key: &str| {
        let lines = os_release.lines().filter_map(|line| line.split_once('='));
        lines
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| value.trim_matches('"').to_string())
            .next()
    };
    if value("ID").as_deref() == Some("debian") {
        value("VERSION_CODENAME")
    } else {
        None
    }
}

/// A source of packages.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    path: String,
    line: String,
}

impl Source {
    fn of(codename: &str) -> Self {
        Source {
            path: format!("/etc/apt/sources.list.d/{codename}-backports.list"),
            line: format!("deb http://deb.debian.org/debian {codename}-backports main"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, conflicts_with_backport, debian_codename, install_line, may_install};

    #[test]
    fn only_root_with_apt_installs() {
        assert_eq!(may_install(true, true), Ok(()));
        let told = may_install(false, true).expect_err("not root");
        let line = "apt-get update && apt-get install -y --no-install-recommends qemu-system-x86 qemu-system-arm \
                    qemu-utils";
        assert!(told.ends_with(line), "{told}");
        assert!(may_install(true, false).is_err_and(|told| told.contains("no apt-get")));
    }

    #[test]
    fn backports_are_used_for_that_one_conflict() {
        let refused = "The following packages have unmet dependencies:\n qemu-utils : Breaks: qemu-system-common (< \
                       1:8.0+dfsg-5~) but 1:7.2+dfsg-7+deb12u18+b3 is to be installed\nE: Error, pkgProblemResolver";
        assert!(conflicts_with_backport(refused));
        assert!(!conflicts_with_backport(
            "E: Unable to locate package qemu-utils"
        ));
        assert!(!conflicts_with_backport(
            "E: Could not get lock /var/lib/dpkg/lock-frontend"
        ));
        assert_eq!(
            install_line(Some("bookworm")),
            "apt-get install -y --no-install-recommends -t bookworm-backports qemu-system-x86 qemu-system-arm \
             qemu-utils"
        );
    }

    #[test]
    fn the_source_is_that_of_the_running_release() {
        let bookworm = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        assert_eq!(debian_codename(bookworm).as_deref(), Some("bookworm"));
        assert_eq!(debian_codename("ID=ubuntu\nVERSION_CODENAME=noble\n"), None);
        let source = Source::of("bookworm");
        assert_eq!(
            source.path,
            "/etc/apt/sources.list.d/bookworm-backports.list"
        );
        assert_eq!(
            source.line,
            "deb http://deb.debian.org/debian bookworm-backports main"
        );
    }
}
