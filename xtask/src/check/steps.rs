//! The table of steps.

use super::step::{Step, step};
use crate::install::SOFTFLOAT;
use crate::kvm;
use crate::project;
use qemu_test_runner::machine::Arch;

const X86: &str = "x86_64-unknown-none";
const ARM: &str = "aarch64-unknown-none";

/// Every step, in order. `seed` is that of the simulator's random runs.
pub fn all(seed: u64) -> Vec<Step> {
    [
        sources(),
        host_tests(),
        bare_builds(),
        package(),
        simulator(seed),
        on_target(),
        kernels(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn sources() -> Vec<Step> {
    let mut steps = vec![step(
        "format",
        2,
        "cargo fmt --all --check -- --color never",
    )];
    for (name, packages) in [
        ("crate", "-p shootdown --all-targets"),
        (
            "crate with defmt",
            "-p shootdown --all-targets --features defmt",
        ),
        ("simulator", "-p shootdown-sim --all-targets"),
        (
            "host tools",
            "-p xtask -p qemu-test-runner -p shootdown-workload -p shootdown-invlpgb-emulation -p shootdown-hypervisor-emulation --all-targets",
        ),
        (
            "crate, x86_64",
            &format!("-p shootdown --features defmt --target {X86}"),
        ),
        (
            "crate, aarch64",
            &format!("-p shootdown --features defmt --target {ARM}"),
        ),
        (
            "crate, aarch64 softfloat",
            &format!("-p shootdown --features defmt --target {SOFTFLOAT}"),
        ),
        (
            "kernels, x86_64",
            &format!(
                "-p shootdown-examples-x86_64 -p embedded-test-x86 --lib --bins --target {X86}"
            ),
        ),
        (
            "kernels, aarch64",
            &format!("-p shootdown-examples-aarch64 --lib --bins --target {ARM}"),
        ),
        (
            "on-target tests, x86_64",
            &format!("-p shootdown-qemu-tests-x86_64 --lib --tests --target {X86}"),
        ),
        (
            "on-target tests, aarch64",
            &format!("-p shootdown-qemu-tests-aarch64 --lib --tests --target {ARM}"),
        ),
    ] {
        steps.push(step(
            &format!("clippy: {name}"),
            5,
            &format!("cargo clippy {packages} -- -D warnings"),
        ));
    }
    for (name, packages) in [
        ("crate", "-p shootdown --features defmt"),
        (
            "crate, aarch64",
            &format!("-p shootdown --features defmt --target {ARM}"),
        ),
        ("simulator", "-p shootdown-sim"),
    ] {
        let line = format!("cargo doc --no-deps {packages}");
        steps.push(step(&format!("rustdoc: {name}"), 5, &line).env("RUSTDOCFLAGS", "-D warnings"));
    }
    steps
}

fn host_tests() -> Vec<Step> {
    let tools = "cargo test --no-fail-fast -p xtask -p qemu-test-runner -p embedded-test-x86 -p shootdown-workload -p shootdown-invlpgb-emulation \
                 -p shootdown-hypervisor-emulation";
    let loom = project::target().join("loom");
    vec![
        step("tests: crate", 5, "cargo test --no-fail-fast -p shootdown").tests(),
        step("tests: host tools", 5, tools).tests(),
        step(
            "tests: simulator",
            10,
            "cargo test --no-fail-fast --release -p shootdown-sim",
        )
        .tests(),
        step(
            "tests: loom",
            10,
            "cargo test --no-fail-fast --release -p shootdown --test loom --target-dir",
        )
        .arg(loom.display().to_string())
        .env("RUSTFLAGS", "--cfg loom")
        .tests(),
    ]
}

fn bare_builds() -> Vec<Step> {
    let build = |target| {
        let line =
            format!("cargo rustc --release --lib -p shootdown --target {target} -- -D warnings");
        step(&format!("build: crate, {target}"), 5, &line)
    };
    [X86, ARM, SOFTFLOAT].map(build).into()
}

fn package() -> Vec<Step> {
    let list = step(
        "package: contents",
        2,
        "cargo package -p shootdown --list --allow-dirty",
    );
    // All it needs was downloaded for the steps above, so the check also works without a network.
    let build = step(
        "package: builds alone",
        5,
        "cargo package -p shootdown --allow-dirty --offline",
    );
    vec![list.package_contents(), build]
}

/// The flushers that the simulator drives, and how many runs of each: enough that no branch of the protocol is left
/// out by chance, which the simulator counts as a failure. The seed chooses the number of CPUs.
const SIMULATED: [(&str, u32); 8] = [
    ("ipi", 10_000),
    ("concurrent_ipi", 10_000),
    ("invlpgb", 10_000),
    ("kvm_pv", 10_000),
    ("hyperv", 10_000),
    ("broadcast", 10_000),
    ("local", 10_000),
    ("active_cpu", 10_000),
];

fn simulator(seed: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for (backend, runs) in SIMULATED {
        for (name, seed) in [("fixed seed", 1), ("random seed", seed)] {
            let line = format!(
                "cargo run --quiet --release -p shootdown-sim --bin sim -- \
                 --backend {backend} --seed {seed} --runs {runs}"
            );
            steps.push(step(
                &format!("simulator: {backend}, {name} {seed}"),
                5,
                &line,
            ));
        }
    }
    steps
}

/// A boot configuration of on-target tests: architecture, what is special about it, the test programs (all if
/// empty), the CPU model, and the runner's other variables.
type OnTarget = (
    Arch,
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Real parallelism: fewer CPUs than the host has make it steady enough to judge.
const PARALLEL: &[(&str, &str)] = &[("QEMU_TEST_THREAD", "multi"), ("QEMU_TEST_SMP", "2")];
const EL2: &[(&str, &str)] = &[("QEMU_TEST_MACHINE", "virtualization=on")];
const X86_SUITE: &[&str] = &[
    "ipi",
    "concurrent_ipi",
    "emulation",
    "invlpgb",
    "promotion",
    "kvm_pv",
    "hyperv",
    "paravirt",
    "lifecycle",
    "boot",
    "parallel",
];
const ARM_SUITE: &[&str] = &[
    "boot",
    "broadcast",
    "active_cpu",
    "local",
    "migration",
    "asids",
    "features",
    "lifecycle",
    "parallel",
];

const ON_TARGET: &[OnTarget] = &[
    (Arch::X86_64, "all features", X86_SUITE, "max", &[]),
    (Arch::X86_64, "no x2APIC", X86_SUITE, "max,-x2apic", &[]),
    (Arch::X86_64, "few features", X86_SUITE, "qemu64", &[]),
    (Arch::X86_64, "in parallel", &["parallel"], "max", PARALLEL),
    (Arch::Aarch64, "all features", ARM_SUITE, "max", &[]),
    (Arch::Aarch64, "ranges", ARM_SUITE, "neoverse-n2", &[]),
    (Arch::Aarch64, "no ranges", ARM_SUITE, "cortex-a72", &[]),
    (Arch::Aarch64, "started at EL2", &["el2"], "max", EL2),
    (Arch::Aarch64, "in parallel", &["parallel"], "max", PARALLEL),
];

fn on_target() -> Vec<Step> {
    let runner = project::target().join("debug").join("qemu-test-runner");
    let mut steps = vec![step(
        "on target: the runner builds",
        5,
        "cargo build -p qemu-test-runner",
    )];
    for (arch, special, programs, model, variables) in ON_TARGET {
        let (target, name) = (
            arch.target(),
            format!("on target: {arch}, {special} ({model})"),
        );
        let mut line =
            format!("cargo test --no-fail-fast -p shootdown-qemu-tests-{arch} --target {target}");
        line.extend(programs.iter().map(|program| format!(" --test {program}")));
        let mut step = step(&name, 5, &line)
            .arg("--config".into())
            .arg(format!(
                "target.{target}.runner=[{:?}]",
                runner.display().to_string()
            ))
            .env("QEMU_TEST_CPU", model)
            .tests();
        for (name, value) in *variables {
            step = step.env(name, value);
        }
        step.model = Some((*arch, (*model).to_string()));
        steps.push(step);
    }
    steps
}

fn kernels() -> Vec<Step> {
    let demo = "cargo run --quiet -p xtask -- demo";
    vec![
        step(
            "bench: two runs agree to the instruction",
            10,
            "cargo run --quiet -p xtask -- bench --check",
        ),
        step("demo", 10, demo),
        step(
            "demo: the flush is broken on purpose",
            10,
            &format!("{demo} --break-flush"),
        ),
        step(
            "guests of a real KVM",
            30,
            "cargo run --quiet -p xtask -- test-kvm",
        )
        .may_skip(kvm::SKIPPED),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::step::{Counting, Step, Work};
    use super::all;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let steps = all(7);
        let names: HashSet<_> = steps.iter().map(|step| &step.name).collect();
        assert_eq!(names.len(), steps.len());
    }

    #[test]
    fn the_random_seed_reaches_the_simulator() {
        let lines: Vec<_> = all(4711)
            .iter()
            .filter(|step| step.name.starts_with("simulator: "))
            .map(line)
            .collect();
        assert!(lines.iter().any(|line| line.contains("--seed 4711 ")));
        assert!(lines.iter().any(|line| line.contains("--seed 1 ")));
    }

    #[test]
    fn whatever_runs_tests_counts_them() {
        for step in all(1) {
            assert_eq!(
                line(&step).contains("cargo test "),
                step.counting == Counting::Tests,
                "{}",
                step.name
            );
        }
    }

    fn line(step: &Step) -> String {
        match &step.work {
            Work::Tool(tool) | Work::PackageContents(tool) => tool.line(),
        }
    }
}
