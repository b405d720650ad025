//! Links the kernels with their own memory layout.

use std::env;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory");
    println!("cargo::rerun-if-changed=kernel.ld");
    println!("cargo::rustc-link-arg-bins=-T{here}/kernel.ld");
}
