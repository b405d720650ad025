//! Places the kernel in QEMU virt's memory. Packages that depend on this one find `memory.ld` too.

use std::env;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory");
    println!("cargo::rerun-if-changed=memory.ld");
    println!("cargo::rustc-link-search={here}");
    // defmt compiles all but errors out unless this is set.
    println!("cargo::rustc-env=DEFMT_LOG=info");
    for script in ["image.ld", "memory.ld", "defmt.x"] {
        println!("cargo::rustc-link-arg-bins=-T{script}");
    }
}
