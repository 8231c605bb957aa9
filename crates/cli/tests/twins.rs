//! Names that differ only in case: copied where the destination tells them apart, and never one over the other where it does not.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use support::{Field, Server, assert_same, names, whimbrel};
use whimbrel_testkit::peers::Run;
use whimbrel_testkit::relay::{Relay, Way};

/// Files, directories and a large file of names that are alike, each with its own path as content.
fn tree(field: &Field) -> PathBuf {
    let tree = field.path("from/tree");
    for name in ["README", "readme", "Data/x", "data/y", "sub/A", "sub/a", "sub/b"] {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    tree
}

/// Every name below a directory, hidden ones too, and the content of files.
fn all(directory: &Path, within: &str, found: &mut BTreeMap<String, String>) {
    for name in names(directory) {
        let (path, text) = (directory.join(&name), format!("{within}{}", name.to_string_lossy()));
        if path.is_dir() {
            all(&path, &format!("{text}/"), found);
            found.insert(text, String::new());
        } else {
            found.insert(text, fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn where_names_are_told_apart_all_are_copied_and_nothing_is_left_of_the_trial() {
    let kinds = Server::kinds();
    for (source, destination) in kinds.iter().flat_map(|from| kinds.iter().map(move |to| (from, to))) {
        let (Some(source), Some(destination)) = (source(), destination()) else { continue };
        let field = Field::new();
        let tree = tree(&field);
        whimbrel(["cp", "-r", &source.url(&tree), &destination.url(field.path("to/"))]).run_ok();
        assert_same(&tree, &field.path("to/tree"));
        // And again, over what is there.
        whimbrel(["cp", "-r", &source.url(&tree), &destination.url(field.path("to/"))]).run_ok();
        assert_same(&tree, &field.path("to/tree"));
    }
}

/// A destination that does not tell case below `to/`, and what a copy to it says.
fn copy_without_case(server: &Server, field: &Field, from: &[&str]) -> (Run, BTreeMap<String, String>) {
    let way = Way::new();
    way.fold_behind("/to/");
    let relay = Relay::before(server.addr(), &way).unwrap();
    let to = format!("ftp://{}{}/", relay.addr(), field.path("to").display());
    let run = whimbrel(["cp", "-r"]).args(from).arg(to).run().unwrap();
    way.end();
    let mut found = BTreeMap::new();
    all(&field.path("to"), "", &mut found);
    (run, found)
}

#[test]
fn where_they_are_not_one_is_copied_and_the_other_told() {
    for server in Server::kinds() {
        let Some(server) = server() else { continue };
        let field = Field::new();
        let tree = tree(&field);
        let (run, found) = copy_without_case(&server, &field, &[&tree.display().to_string()]);
        let told = run.stderr_text();
        assert_ne!(run.code(), Some(0), "{told}");
        // Which is listed first, the directory says.
        for (one, other) in [("README", "readme"), ("Data", "data"), ("sub/A", "sub/a")] {
            let told_of = |path: &str, other: &str| {
                let other = other.rsplit('/').next().unwrap();
                let line =
                    |line: &&str| line.contains(&format!("/to/tree/{path}")) && line.contains(&format!("'{other}'"));
                told.lines().any(|text| line(&text))
            };
            let (refused, copied) = match (told_of(one, other), told_of(other, one)) {
                (true, false) => (one, other),
                (false, true) => (other, one),
                both => panic!("{one} {both:?}: {told}"),
            };
            let content = |name: &str| {
                found.iter().filter(|(path, _)| path.eq_ignore_ascii_case(&format!("tree/{name}"))).collect::<Vec<_>>()
            };
            if one != "Data" {
                assert_eq!(content(copied).len(), 1, "{found:?}");
                assert_eq!(content(copied)[0].1, copied, "{refused} is written over it: {found:?}");
            } else {
                let inside: Vec<_> = found
                    .values()
                    .filter(|text| text.eq_ignore_ascii_case("data/x") || text.eq_ignore_ascii_case("data/y"))
                    .collect();
                assert_eq!(inside.len(), 1, "{found:?}");
                assert!(inside[0].starts_with(copied), "{found:?}");
            }
        }
        assert!(found.values().any(|text| text == "sub/b"), "{found:?}");
        assert!(found.keys().all(|name| !name.contains(".whimbrel-")), "{found:?}");
    }
}

#[test]
fn sources_given_one_by_one_are_told_apart_too() {
    for server in Server::kinds() {
        let Some(server) = server() else { continue };
        let field = Field::new();
        let tree = tree(&field);
        let [one, other] = ["README", "readme"].map(|name| tree.join(name).display().to_string());
        let (run, found) = copy_without_case(&server, &field, &[&one, &other]);
        assert_ne!(run.code(), Some(0));
        assert!(run.stderr_text().contains("takes this name for 'README'"), "{}", run.stderr_text());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found.values().next().unwrap(), "README");
    }
}
