//! What the published package holds.

/// Files that it must hold.
const REQUIRED: [&str; 6] = [
    "Cargo.toml",
    "README.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "src/lib.rs",
];
/// Directories of which it must hold something.
const REQUIRED_UNDER: [&str; 3] = ["src/", "arch/x86_64/", "arch/aarch64/"];
/// What cargo adds by itself.
const ADDED: [&str; 3] = [".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml.orig"];

/// Judges the list of files that `cargo package --list` prints.
pub fn judge(list: &str) -> Result<(), String> {
    let files: Vec<&str> = list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let missing_files = REQUIRED.iter().filter(|file| !files.contains(file));
    let missing_under = REQUIRED_UNDER
        .iter()
        .filter(|start| !files.iter().any(|file| file.starts_with(**start)));
    let missing: Vec<&str> = missing_files.chain(missing_under).copied().collect();
    if !missing.is_empty() {
        return Err(format!("the package lacks {}", missing.join(", ")));
    }
    let is_known = |file: &str| {
        REQUIRED.contains(&file)
            || ADDED.contains(&file)
            || (file.ends_with(".rs") && (file.starts_with("src/") || file.starts_with("arch/")))
    };
    let surplus: Vec<&str> = files.into_iter().filter(|file| !is_known(file)).collect();
    if !surplus.is_empty() {
        return Err(format!(
            "the package should not hold {}",
            surplus.join(", ")
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::judge;

    const GOOD: &str = ".cargo_vcs_info.json\nCHANGELOG.md\nCargo.lock\nCargo.toml\nCargo.toml.orig\nLICENSE-APACHE\n\
                        LICENSE-MIT\nREADME.md\narch/aarch64/mod.rs\narch/x86_64/mod.rs\nsrc/lib.rs\n";

    #[test]
    fn takes_the_crate_and_its_papers() {
        assert_eq!(judge(GOOD), Ok(()));
    }

    #[test]
    fn misses_a_license_and_an_architecture() {
        assert!(
            judge(&GOOD.replace("LICENSE-MIT\n", ""))
                .is_err_and(|reason| reason.contains("LICENSE-MIT"))
        );
        assert!(
            judge(&GOOD.replace("arch/aarch64", "arch/arm"))
                .is_err_and(|reason| reason.contains("arch/aarch64/"))
        );
        assert!(judge("").is_err());
    }

    #[test]
    fn refuses_what_a_user_does_not_need() {
        for file in [
            "sim/src/lib.rs",
            "xtask/src/main.rs",
            "qemu-tests/x86_64/build.rs",
            "src/notes.txt",
        ] {
            assert!(judge(&format!("{GOOD}{file}\n")).is_err_and(|reason| reason.contains(file)));
        }
    }
}
