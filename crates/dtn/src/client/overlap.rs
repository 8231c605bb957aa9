//! Where a source and its destination are one thing, or one inside the other.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use whimbrel_engine::plan::{Links, PlanOptions};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::options::Place;

/// Whether the destination lies in the source, or is the source: its copies would be copied for ever.
pub fn swallows_itself(source: &Place, destination: &Place) -> bool {
    resolved(source, destination, true).is_some_and(|[source, destination]| destination.starts_with(source))
}

/// Why a source must not be copied there as it is planned: it would be written over while it is read, or copied into itself for
/// ever.
///
/// # Errors
/// `InvalidArgument` of our own side: as the user has asked for it, it cannot be done.
pub fn refuse(source: &Place, destination: &Place, plan: &PlanOptions) -> Result<(), Fault> {
    let Some([from, to]) = resolved(source, destination, plan.links == Links::Follow) else { return Ok(()) };
    let text = match to.starts_with(&from) {
        true if from == to => "source and destination are the same",
        true if plan.recursive => "the destination lies in the directory that is copied",
        _ => return Ok(()),
    };
    Err(Fault::new(FaultCode::InvalidArgument, "copy").on_path(&destination.path).side(Side::Us).detail(text))
}

/// Both paths at one end in a form in which they can be compared; `None`: at different ends. A source that is a link is what it
/// leads to if that is `followed`.
fn resolved(source: &Place, destination: &Place, followed: bool) -> Option<[PathBuf; 2]> {
    if source.target != destination.target {
        return None;
    }
    if source.target.is_some() {
        return Some([lexical(&source.path), lexical(&destination.path)]);
    }
    let from = Path::new(OsStr::from_bytes(&source.path));
    let from = match (from.parent(), from.file_name()) {
        (Some(above), Some(name)) if !followed => real(above).join(name),
        _ => real(from),
    };
    Some([from, real(Path::new(OsStr::from_bytes(&destination.path)))])
}

/// The path with the part of it that exists resolved.
fn real(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match found {
        Some((part, real)) => real.join(path.strip_prefix(part).unwrap_or(Path::new(""))),
        None => path.to_owned(),
    }
}

/// The path without what leads nowhere, as if there were no links.
pub fn lexical(path: &[u8]) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(path)).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::target::Target;

    #[test]
    fn a_destination_inside_the_source_is_found_out_through_links() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.path().join("link")).unwrap();
        let place = |name: &str| Place { target: None, path: root.path().join(name).as_os_str().as_bytes().to_vec() };
        assert!(swallows_itself(&place("link"), &place("real/not/yet")));
        assert!(swallows_itself(&place("real"), &place("link")));
        assert!(!swallows_itself(&place("real"), &place("really")));
    }

    #[test]
    fn a_link_that_is_made_again_may_go_into_what_it_leads_to() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.path().join("link")).unwrap();
        let place = |name: &str| Place { target: None, path: root.path().join(name).as_os_str().as_bytes().to_vec() };
        let plan = |links| PlanOptions { recursive: true, links, ..PlanOptions::default() };
        assert!(refuse(&place("link"), &place("real/link"), &plan(Links::Follow)).is_err());
        assert!(refuse(&place("link"), &place("real/link"), &plan(Links::Copy)).is_ok());
        assert!(refuse(&place("real"), &place("link/real"), &plan(Links::Copy)).is_err());
    }

    #[test]
    fn only_trees_are_refused_inside_themselves_and_nothing_onto_itself() {
        let at = |host: &str, path: &str| Place { target: Some(Target::anonymous(host, 1)), path: path.into() };
        let refused = |from: Place, to: Place, recursive| {
            refuse(&from, &to, &PlanOptions { recursive, ..PlanOptions::default() }).is_err()
        };
        assert!(refused(at("a", "/d"), at("a", "/d/x"), true) && !refused(at("a", "/d"), at("a", "/d/x"), false));
        assert!(refused(at("a", "/d/./f"), at("a", "//d/e/../f"), false));
        assert!(refused(at("a", "d/"), at("a", "./d"), true));
        assert!(!refused(at("a", "../d"), at("a", "d"), true) && !refused(at("a", "/d"), at("a", "/de"), true));
        assert!(!refused(at("a", "/d"), at("b", "/d/x"), true));
    }
}
