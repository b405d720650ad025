//! `cargo xtask images`.

use crate::failure::Failure;
use crate::install::{self, Needs};
use crate::{build, kernels, project};
use std::path::PathBuf;
use std::process::ExitCode;

/// Which images to write, and where.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Directory for the images, instead of `target/images`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Number of CPUs in the printed lines.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
}

/// Writes a bootable ELF file per kernel and prints how to boot it.
///
/// # Errors
/// If a kernel does not build, or a file can't be written.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    install::install(&Needs::to_build_kernels(kernels::KERNELS.iter()))?;
    let directory = options
        .out
        .clone()
        .unwrap_or_else(|| project::target().join("images"));
    std::fs::create_dir_all(&directory).map_err(Failure::file(&directory))?;
    for kernel in kernels::KERNELS {
        let elf = build::kernel(kernel, false)?;
        let image = directory.join(format!("{}.elf", kernel.name()));
        std::fs::copy(&elf, &image).map_err(Failure::file(&image))?;
        let words = kernel.words(options.cpus, None);
        println!(
            "{}\n  {}",
            image.display(),
            kernel.machine(options.cpus).shell_line(&image, &words)
        );
    }
    Ok(ExitCode::SUCCESS)
}
