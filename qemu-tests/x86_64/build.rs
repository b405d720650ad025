//! Links the tests as kernels: with the example kernels' memory layout, and the sections in which the runner finds
//! the tests.

use std::env;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory");
    let layout = format!("{here}/../../examples/x86_64/kernel.ld");
    println!("cargo::rerun-if-changed={layout}");
    println!("cargo::rustc-link-arg-tests=-T{layout}");
    println!("cargo::rustc-link-arg-tests=-Tembedded-test.x");
}
