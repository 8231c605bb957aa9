//! Replays every kept fuzz input on the ordinary compiler: what once broke a promise must keep it for good.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

use whimbrel_testkit::fuzz::TARGETS;
use whimbrel_testkit::fuzz::seeds::{PREFIX, seeds};

/// Most inputs, and most bytes, that one target may keep.
const MAX_FILES: usize = 400;
const MAX_BYTES: usize = 64 << 10;

fn fuzz_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The inputs of a target, by name.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = fuzz_folder().join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut inputs: Vec<_> = paths.map(|path| (path.display().to_string(), fs::read(path).expect("a file"))).collect();
    inputs.sort();
    inputs
}

#[test]
fn every_kept_input_keeps_every_promise() {
    let mut broken = Vec::new();
    for (target, body) in TARGETS {
        let inputs = corpus(target);
        assert!(!inputs.is_empty(), "{target} has no corpus");
        // Why it is broken is printed by the panic itself.
        broken.extend(inputs.into_iter().filter_map(|(name, data)| catch_unwind(|| body(&data)).err().map(|_| name)));
    }
    assert!(broken.is_empty(), "broken by {broken:#?}");
}

#[test]
fn seeds_are_made_of_the_types_of_today() {
    for (target, _) in TARGETS {
        let name = |path: &str| path.rsplit('/').next().expect("a path has a last part").to_owned();
        let kept = corpus(target).into_iter().map(|(path, data)| (name(&path), data));
        let kept: BTreeMap<_, _> = kept.filter(|(name, _)| name.starts_with(PREFIX)).collect();
        let same = kept == seeds(target).into_iter().collect();
        assert!(same, "{target}: cargo run -p whimbrel-testkit --example fuzz_seeds");
    }
}

#[test]
fn corpora_stay_small() {
    for (target, _) in TARGETS {
        let inputs = corpus(target);
        let bytes: usize = inputs.iter().map(|(_, data)| data.len()).sum();
        assert!(inputs.len() <= MAX_FILES && bytes <= MAX_BYTES, "{target}: {} files, {bytes} bytes", inputs.len());
    }
}

#[test]
fn programs_and_corpora_are_those_of_the_targets() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    for folder in ["fuzz_targets", "corpus"] {
        let entries = fs::read_dir(fuzz_folder().join(folder)).unwrap();
        let stems = entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned());
        assert_eq!(stems.collect::<BTreeSet<_>>(), targets, "{folder}");
    }
}
