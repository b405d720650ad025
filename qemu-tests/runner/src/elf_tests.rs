//! The tests that an `embedded-test` binary holds.
//!
//! Each is a symbol in the section `.embedded_test` whose name is a JSON object and whose value is a pair of the
//! test's entry point and its module path (address and length).

use object::{Architecture, File, Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind};
use serde::Deserialize;
use std::time::Duration;

use crate::machine::Arch;

const SECTION: &str = ".embedded_test";
const VERSION_SYMBOL: &str = "EMBEDDED_TEST_VERSION";
const VERSION: u64 = 1;

/// A test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfTest {
    /// Its path without the name of the crate.
    pub name: String,
    /// The address of its entry point.
    pub entry: u64,
    /// Marked `#[ignore]`.
    pub ignored: bool,
    /// Marked `#[should_panic]`.
    pub should_panic: bool,
    /// The time limit of its `#[timeout]`.
    pub timeout: Option<Duration>,
}

/// A binary that holds no tests this program can run.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// Not an ELF file.
    #[error("not a readable ELF file: {0}")]
    Unreadable(#[from] object::Error),
    /// Neither x86_64 nor aarch64.
    #[error("no machine to boot for the architecture {0:?}")]
    Architecture(Architecture),
    /// No test in it.
    #[error(
        "no tests in it: is it linked with `-Tembedded-test.x`, and does it use `#[embedded_test::tests]`?"
    )]
    NoTests,
    /// Written by another version of embedded-test.
    #[error("the layout of the tests is version {0}, but only version {VERSION} is known")]
    Version(u64),
    /// The description of a test does not hold together.
    #[error("test `{symbol}`: {reason}")]
    Malformed {
        /// The symbol's name.
        symbol: String,
        /// What is wrong.
        reason: String,
    },
}

#[derive(Deserialize)]
struct Description {
    name: String,
    ignored: bool,
    should_panic: bool,
    timeout: Option<u64>,
}

/// Reads the architecture and the tests of an ELF file.
///
/// # Errors
/// If the file is no ELF file of a known architecture, or holds no or malformed tests.
pub fn read(data: &[u8]) -> Result<(Arch, Vec<ElfTest>), ElfError> {
    let file = File::parse(data)?;
    let arch = match file.architecture() {
        Architecture::X86_64 => Arch::X86_64,
        Architecture::Aarch64 => Arch::Aarch64,
        other => return Err(ElfError::Architecture(other)),
    };
    let section = file.section_by_name(SECTION).ok_or(ElfError::NoTests)?;
    let word = |address: u64| -> Option<u64> {
        let bytes = section.data_range(address, 8).ok()??;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut version = None;
    let mut tests = Vec::new();
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.section_index() == Some(section.index()))
    {
        let name = symbol.name()?;
        if name == VERSION_SYMBOL {
            version = word(symbol.address());
        } else if name.starts_with('{') {
            let malformed = |reason: String| ElfError::Malformed {
                symbol: name.into(),
                reason,
            };
            let mut words = [0; 3];
            for (at, value) in (symbol.address()..).step_by(8).zip(&mut words) {
                *value = word(at).ok_or_else(|| malformed("it is cut off".into()))?;
            }
            let description: Description =
                serde_json::from_str(name).map_err(|e| malformed(e.to_string()))?;
            tests.push(elf_test(&file, description, words).map_err(malformed)?);
        }
    }
    match version {
        None => Err(ElfError::NoTests),
        Some(VERSION) if tests.is_empty() => Err(ElfError::NoTests),
        Some(VERSION) => {
            tests.sort_by(|a, b| a.name.cmp(&b.name));
            Ok((arch, tests))
        }
        Some(other) => Err(ElfError::Version(other)),
    }
}

fn elf_test(file: &File<'_>, description: Description, words: [u64; 3]) -> Result<ElfTest, String> {
    let [entry, path, path_length] = words;
    if !is_code(file, entry) {
        return Err(format!(
            "its entry point {entry:#x} is not in a code section"
        ));
    }
    let path =
        loaded_bytes(file, path, path_length).and_then(|bytes| std::str::from_utf8(bytes).ok());
    let path = path.ok_or("its module path is not in the file")?;
    let path = path.split_once("::").map_or("", |(_crate, module)| module);
    let name = if path.is_empty() {
        description.name
    } else {
        format!("{path}::{}", description.name)
    };
    Ok(ElfTest {
        name,
        entry,
        ignored: description.ignored,
        should_panic: description.should_panic,
        timeout: description.timeout.map(Duration::from_secs),
    })
}

fn is_code(file: &File<'_>, address: u64) -> bool {
    file.sections().any(|section| {
        section.kind() == SectionKind::Text
            && section.address() <= address
            && address - section.address() < section.size()
    })
}

fn loaded_bytes<'data>(file: &File<'data>, address: u64, length: u64) -> Option<&'data [u8]> {
    file.segments()
        .find_map(|segment| segment.data_range(address, length).ok()?)
}

#[cfg(test)]
mod tests;
