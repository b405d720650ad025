//! The file system of the emulated machine: a shell, KVM's modules, and this machine's QEMU with all it needs.

use super::packages::Linux;
use crate::failure::Failure;
use crate::tool::Tool;
use cpio::newc::{Builder, trailer};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What QEMU reads to boot a kernel on a PC.
const FIRMWARE: [&str; 4] = [
    "bios-256k.bin",
    "kvmvapic.bin",
    "linuxboot_dma.bin",
    "pvh.bin",
];
const LIMIT: Duration = Duration::from_secs(60);
const REGULAR: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;

/// What is in it: where it goes, without the leading slash, and what it holds.
struct Contents(Vec<(String, Source)>);

enum Source {
    File(PathBuf),
    Text(String),
}

/// Writes it to `path`. `run` is the script that the machine runs; `kernels` are the guests, which it finds in
/// `/kernels`.
///
/// # Errors
/// If something is missing or can't be read or written.
pub fn write(path: &Path, linux: &Linux, run: String, kernels: &[PathBuf]) -> Result<(), Failure> {
    let mut contents = Contents(vec![
        ("init".into(), Source::Text(include_str!("init.sh").into())),
        ("run.sh".into(), Source::Text(run)),
        ("bin/busybox".into(), Source::File(linux.busybox.clone())),
    ]);
    for (index, module) in linux.modules.iter().enumerate() {
        // They are loaded in the order of their names.
        contents.file(&format!("modules/{index}-{}", name(module)), module);
    }
    for kernel in kernels {
        contents.file(&format!("kernels/{}", name(kernel)), kernel);
    }
    let qemu = program("qemu-system-x86_64")?;
    contents.file("usr/bin/qemu-system-x86_64", &qemu);
    for library in libraries(&qemu)? {
        contents.file(&library[1..], Path::new(&library));
    }
    for (firmware, found) in firmware(&qemu)? {
        contents.file(&format!("usr/share/qemu/{firmware}"), &found);
    }
    let file = File::create(path).map_err(Failure::file(path))?;
    let mut out = BufWriter::new(file);
    contents.archive(&mut out).map_err(Failure::file(path))?;
    out.flush().map_err(Failure::file(path))
}

impl Contents {
    fn file(&mut self, name: &str, from: &Path) {
        self.0.push((name.into(), Source::File(from.into())));
    }

    fn archive(&self, mut out: &mut impl Write) -> std::io::Result<()> {
        let mut inode = 0;
        let mut entry = |name: &str, mode| {
            inode += 1;
            Builder::new(name).ino(inode).mode(mode).nlink(1)
        };
        for directory in self.directories() {
            out = entry(&directory, DIRECTORY).write(out, 0).finish()?;
        }
        for (name, source) in &self.0 {
            let data = match source {
                Source::File(path) => std::fs::read(path)?,
                Source::Text(text) => text.clone().into_bytes(),
            };
            let size = u32::try_from(data.len()).map_err(std::io::Error::other)?;
            let mut writer = entry(name, REGULAR).write(out, size);
            writer.write_all(&data)?;
            out = writer.finish()?;
        }
        trailer(out)?;
        Ok(())
    }

    /// Every directory, each after the one it is in.
    fn directories(&self) -> BTreeSet<String> {
        let empty = ["dev", "proc", "sys", "tmp"].map(String::from);
        let parents = self.0.iter().flat_map(|(name, _)| {
            let parents = Path::new(name).ancestors().skip(1);
            parents.map(|path| path.display().to_string())
        });
        parents
            .chain(empty)
            .filter(|path| !path.is_empty())
            .collect()
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Where a program is that the shell would find.
fn program(name: &str) -> Result<PathBuf, Failure> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .ok_or(Failure::Setup(format!("`{name}` was not found")))
}

/// The libraries of a program, by their absolute paths, and the loader.
fn libraries(program: &Path) -> Result<Vec<String>, Failure> {
    let tool = Tool::new("ldd", LIMIT)
        .arg(program.display().to_string())
        .env("LC_ALL", "C");
    let output = tool.quiet_output().ok_or(Failure::Output {
        command: tool.line(),
        reason: "it failed".into(),
    })?;
    Ok(libraries_of(&output))
}

/// From lines `NAME => PATH (ADDRESS)` and `LOADER (ADDRESS)`.
fn libraries_of(output: &str) -> Vec<String> {
    let path = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words
            .iter()
            .find(|word| word.starts_with('/'))
            .map(ToString::to_string)
    };
    output.lines().filter_map(path).collect()
}

/// Where QEMU has its firmware, by name.
fn firmware(qemu: &Path) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let tool = Tool::new(&format!("{} -L help", qemu.display()), LIMIT);
    let directories = tool.quiet_output().ok_or(Failure::Output {
        command: tool.line(),
        reason: "it failed".into(),
    })?;
    let find = |file: &&'static str| {
        let found = directories
            .lines()
            .map(|directory| Path::new(directory.trim()).join(file))
            .find(|path| path.is_file());
        found.map(|found| (*file, found)).ok_or(Failure::Output {
            command: tool.line(),
            reason: format!("no {file} in any of these directories"),
        })
    };
    FIRMWARE.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::{Contents, Source, libraries_of};
    use cpio::NewcReader;
    use std::io::Read;

    #[test]
    fn finds_libraries_and_the_loader() {
        let output = "\tlinux-vdso.so.1 (0x0007fff)\n\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x0007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x0007f)\n";
        assert_eq!(
            libraries_of(output),
            [
                "/lib/x86_64-linux-gnu/libz.so.1",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
    }

    #[test]
    fn the_archive_has_each_directory_before_what_is_in_it() {
        let text = Source::Text("abc".into());
        let contents = Contents(vec![("a/b/c".into(), text)]);
        let mut archive = Vec::new();
        contents.archive(&mut archive).expect("memory takes it");
        let (mut names, mut rest) = (Vec::new(), archive.as_slice());
        loop {
            let mut reader = NewcReader::new(rest).expect("an entry");
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_string());
            if reader.entry().name() == "a/b/c" {
                let mut data = String::new();
                reader.read_to_string(&mut data).expect("it is text");
                assert_eq!(data, "abc");
            }
            rest = reader.finish().expect("another entry");
        }
        assert_eq!(names, ["a", "a/b", "dev", "proc", "sys", "tmp", "a/b/c"]);
    }
}
