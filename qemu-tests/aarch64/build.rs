//! Links the tests as the example kernels are; `memory.ld` comes from their package.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for script in ["image.ld", "memory.ld", "defmt.x", "embedded-test.x"] {
        println!("cargo::rustc-link-arg-tests=-T{script}");
    }
}
