//! Each stored replay fails with its broken variant, at once, and passes without.
#![cfg(not(loom))]

use std::{collections::BTreeSet, fs, path::Path};

use shootdown_sim::{
    Spec, replay, run,
    variants::{Caught, VARIANTS},
};

fn stored() -> Vec<(String, Spec)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("replays");
    let mut all = Vec::new();
    for entry in fs::read_dir(&directory).expect("sim/replays is part of the source") {
        let path = entry.expect("sim/replays can be read").path();
        let text = fs::read_to_string(&path).expect("a replay is text");
        let spec =
            replay::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path
            .file_stem()
            .expect("a replay has a name")
            .to_string_lossy()
            .into_owned();
        all.push((name, spec));
    }
    all
}

#[test]
fn each_variant_that_the_simulator_catches_has_a_replay() {
    let names: BTreeSet<String> = stored().into_iter().map(|(name, _)| name).collect();
    let expected: BTreeSet<String> = VARIANTS
        .iter()
        .filter(|(_, caught)| matches!(caught, Caught::Simulator(_)))
        .map(|(variant, _)| format!("{variant:?}"))
        .collect();
    assert_eq!(names, expected);
}

#[test]
fn broken_variants_fail() {
    for (name, spec) in stored() {
        assert_eq!(
            spec.broken.map(|variant| format!("{variant:?}")).as_ref(),
            Some(&name)
        );
        assert!(
            run(&spec).failure.is_some(),
            "{name}: the replay passes. If the crate's code has moved on, record it again: sim record --variant {name}"
        );
    }
}

#[test]
fn the_crate_as_it_is_passes() {
    for (name, mut spec) in stored() {
        spec.broken = None;
        let failure = run(&spec).failure.map(|failure| failure.message);
        assert_eq!(failure, None, "{name}");
    }
}

#[test]
fn a_run_is_the_same_every_time() {
    for (name, mut spec) in stored() {
        spec.trace = true;
        assert_eq!(run(&spec).trace, run(&spec).trace, "{name}");
    }
}
