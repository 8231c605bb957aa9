use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_connector::{Disposition, memory::Memory};
use whimbrel_proto::rules::{Operations, PathRule};

use super::super::ledger::Ledger;
use super::*;
use crate::client::run::RunId;
use crate::client::temporary;

fn path(text: &str) -> StoragePath {
    StoragePath::resolve(&StoragePath::root(), text.as_bytes()).unwrap()
}

/// `/open` may be used, `/inbox` takes new files, `/shown` may be read; `/secret` and all else may not even be seen.
fn rules() -> PathRules {
    let rules = [
        PathRule::allow("/open", Operations::ALL),
        PathRule::allow("/inbox", Operation::Create.into()),
        PathRule::allow("/shown", Operations::READING),
        PathRule::deny("/open/closed", Operations::ALL),
    ];
    PathRules::new(Operations::NONE, &rules).unwrap()
}

struct Tree {
    directory: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["open/closed", "inbox", "shown", "secret"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        for name in ["open/file", "open/closed/file", "shown/file", "secret/file"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        Self { directory }
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    fn ruled(&self, without_openat2: bool) -> Ruled {
        let options = PosixOptions { without_openat2, ..PosixOptions::default() };
        Ruled::new(Arc::new(Posix::open(self.root(), options).unwrap()), rules(), None)
    }
}

fn read(storage: &dyn Connector, name: &str) -> Result<String, Fault> {
    let reader = storage.open_read(&path(name), None)?;
    let mut buffer = [0; 100];
    let count = reader.read_at(0, &mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..count]).into_owned())
}

fn put(storage: &dyn Connector, name: &str) -> Result<(), Fault> {
    storage.put(&path(name), b"new", &Attributes::default(), None)
}

#[track_caller]
fn denied<T>(result: Result<T, Fault>) {
    let fault = result.map(drop).expect_err("a rule was broken");
    assert_eq!(fault.code, FaultCode::NotAuthorized, "{fault}");
}

#[test]
fn every_operation_asks_the_rules() {
    let tree = Tree::new();
    let ruled = tree.ruled(false);
    let ask = |name: &str| path(name);
    let attributes = Attributes { mode: Some(0o600), ..Attributes::default() };
    let intent = WriteIntent { disposition: Disposition::Replace, size: None, length: None, mode: None };
    for place in ["/secret", "/open/closed"] {
        let file = format!("{place}/file");
        denied(ruled.stat(&ask(&file), Follow::Yes));
        denied(ruled.list(&ask(place)));
        denied(read(&ruled, &file));
        denied(ruled.begin(&ask(&file), &intent));
        denied(ruled.target(&ask(&file)));
        denied(put(&ruled, &file));
        denied(put(&ruled, &format!("{place}/new")));
        denied(ruled.unfinished(&ask(&file)));
        denied(ruled.scratch(&ask(place)).map(drop));
        denied(ruled.file_system(&ask(place)));
        denied(ruled.make_dir(&ask(&format!("{place}/new"))));
        denied(ruled.remove_dir(&ask(place)));
        denied(ruled.remove_file(&ask(&file)));
        denied(ruled.remove_tree(&ask(place)));
        denied(ruled.rename(&ask(&file), &ask("/open/taken"), false));
        denied(ruled.rename(&ask("/open/file"), &ask(&format!("{place}/taken")), false));
        denied(ruled.symlink(b"x", &ask(&format!("{place}/link"))));
        denied(ruled.set_attributes(&ask(&file), &attributes, Follow::Yes));
        denied(ruled.truncate(&ask(&file), 0));
        // Not even whether something is there is told.
        denied(ruled.stat(&ask(&format!("{place}/none/deeper")), Follow::Yes));
    }
    denied(ruled.remove_tree(&ask("/open")));
    denied(ruled.list(&ask("/")));
    assert!(ruled.stat(&ask("/"), Follow::Yes).is_ok(), "the way to what is allowed may be seen");
    denied(put(&ruled, "/shown/file"));
    assert_eq!(read(&ruled, "/shown/file").unwrap(), "shown/file");
    let names: Vec<_> = ruled.list(&ask("/open")).unwrap().map(|entry| entry.unwrap().name).collect();
    assert_eq!(names, [b"file"], "what may not be seen is not listed");
}

#[test]
fn what_may_be_created_only_is_not_replaced() {
    let tree = Tree::new();
    let ruled = tree.ruled(false);
    put(&ruled, "/inbox/one").unwrap();
    denied(put(&ruled, "/inbox/one"));
    let intent = WriteIntent { disposition: Disposition::Replace, size: None, length: None, mode: None };
    denied(ruled.begin(&path("/inbox/one"), &intent));
    let session = ruled.begin(&path("/inbox/two"), &intent).unwrap();
    ruled.join(&session).unwrap().write_at(0, b"late").unwrap();
    put(&ruled, "/inbox/two").unwrap();
    denied(ruled.commit(&session, &[], &Attributes::default()));
    assert_eq!(std::fs::read(tree.root().join("inbox/two")).unwrap(), b"new");
    // The answer to the first time may have been lost.
    let session = ruled.begin(&path("/inbox/three"), &intent).unwrap();
    ruled.join(&session).unwrap().write_at(0, b"mine").unwrap();
    for _ in 0..2 {
        ruled.commit(&session, &[], &Attributes::default()).unwrap();
    }
    denied(put(&ruled, "/inbox/three"));
}

/// Whatever the order: one of them is first, is told so, and stays.
#[test]
fn of_two_who_create_at_once_one_does() {
    let tree = Tree::new();
    // Two processes, on two hosts perhaps.
    let (one, other) = (tree.ruled(false), tree.ruled(false));
    let intent = WriteIntent { disposition: Disposition::Replace, size: None, length: None, mode: None };
    let mut firsts = 0;
    for number in 0..1500 {
        let name = path(&format!("/inbox/{number}"));
        let session = one.begin(&name, &intent).unwrap();
        one.join(&session).unwrap().write_at(0, b"in steps").unwrap();
        // So that the other one does not take it over, but makes its own.
        let moved = tree.root().join(format!("open/{number}"));
        let meet = std::sync::Barrier::new(2);
        let (in_steps, at_once) = thread::scope(|scope| {
            let at_once = scope.spawn(|| {
                std::fs::write(&moved, "at once").unwrap();
                meet.wait();
                other.rename(&path(&format!("/open/{number}")), &name, false)
            });
            meet.wait();
            let in_steps = one.commit(&session, &[], &Attributes::default());
            (in_steps, at_once.join().unwrap())
        });
        assert_ne!(in_steps.is_ok(), at_once.is_ok(), "{number}: {in_steps:?}, {at_once:?}");
        let stored = std::fs::read(tree.root().join(format!("inbox/{number}"))).unwrap();
        let winner: &[u8] = if in_steps.is_ok() { b"in steps" } else { b"at once" };
        assert_eq!(stored, winner);
        firsts += usize::from(in_steps.is_ok());
    }
    println!("{firsts} times in steps");
}

#[test]
fn who_may_only_create_takes_no_name_and_changes_no_file() {
    let tree = Tree::new();
    let ruled = tree.ruled(false);
    std::fs::write(tree.root().join("inbox/taken"), "theirs").unwrap();
    let exists = |result: Result<(), Fault>| assert_eq!(result.unwrap_err().code, FaultCode::AlreadyExists);
    for disposition in [Disposition::Replace, Disposition::Update, Disposition::Resume, Disposition::Continue] {
        let intent = WriteIntent { disposition, size: None, length: None, mode: None };
        exists(ruled.fresh.begin(&path("/inbox/taken"), &intent).map(drop));
    }
    put(&ruled, "/inbox/new").unwrap();
    exists(ruled.fresh.put(&path("/inbox/taken"), b"x", &Attributes::default(), None));
    exists(ruled.fresh.rename(&path("/inbox/new"), &path("/inbox/taken"), false));
    assert_eq!(std::fs::read(tree.root().join("inbox/taken")).unwrap(), b"theirs");
    let names: Vec<_> =
        std::fs::read_dir(tree.root().join("inbox")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_link_is_what_it_leads_to() {
    let tree = Tree::new();
    symlink("/secret", tree.root().join("open/out")).unwrap();
    symlink("../../secret/file", tree.root().join("open/closed/file-out")).unwrap();
    symlink("/open", tree.root().join("secret/in")).unwrap();
    symlink("/secret/new", tree.root().join("open/new")).unwrap();
    for without_openat2 in [false, true] {
        let ruled = tree.ruled(without_openat2);
        denied(read(&ruled, "/open/out/file"));
        denied(ruled.list(&path("/open/out")));
        denied(put(&ruled, "/open/out/x"));
        denied(put(&ruled, "/open/new"));
        assert_eq!(read(&ruled, "/secret/in/file").unwrap(), "open/file", "the place counts, not the way");
        assert!(ruled.stat(&path("/open/out"), Follow::No).is_ok(), "the link itself lies in a place of its user's");
        denied(ruled.stat(&path("/open/out"), Follow::Yes));
    }
    assert!(!tree.root().join("secret/new").exists());
}

/// A thread swaps a directory for a link into what is forbidden, over and over, while the path is used.
#[test]
fn a_link_that_comes_between_check_and_use_leads_nowhere() {
    let tree = Tree::new();
    let root = tree.root().to_owned();
    std::fs::create_dir(root.join("open/dir")).unwrap();
    std::fs::write(root.join("open/dir/file"), "open/dir/file").unwrap();
    symlink("/secret", root.join("open/link")).unwrap();
    let stop = AtomicBool::new(false);
    for without_openat2 in [false, true] {
        stop.store(false, Ordering::Relaxed);
        let ruled = tree.ruled(without_openat2);
        let (mut seen, mut refused) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    exchange(&root.join("open/dir"), &root.join("open/link"));
                }
            });
            for _ in 0..20_000 {
                match read(&ruled, "/open/dir/file") {
                    Ok(text) => {
                        assert_eq!(text, "open/dir/file", "a forbidden file was read");
                        seen += 1;
                    }
                    Err(_) => refused += 1,
                }
                let _either = put(&ruled, "/open/dir/planted");
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(seen > 0 && refused > 0, "no race: {seen} read, {refused} refused");
        let planted = ["secret/planted", "open/closed/planted"].map(|name| root.join(name).exists());
        assert_eq!(planted, [false, false], "something was written where nothing may be");
    }
}

/// Both names change what they stand for at once.
fn exchange(one: &Path, other: &Path) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn no_more_is_stored_than_the_quota_allows() {
    let ledger = Ledger::default();
    let ruled = Ruled::new(Arc::new(Memory::new()), PathRules::everything(), Some(ledger.quota("ada", 10)));
    put(&ruled, "/one").unwrap();
    let sized = |size| WriteIntent { disposition: Disposition::Replace, size, length: size, mode: None };
    let full = |result: Result<(), Fault>| assert_eq!(result.unwrap_err().code, FaultCode::QuotaExceeded);
    full(ruled.begin(&path("/two"), &sized(Some(8))).map(drop));
    let session = ruled.begin(&path("/two"), &sized(None)).unwrap();
    let writer = ruled.join(&session).unwrap();
    writer.write_at(0, b"1234567").unwrap();
    full(writer.write_at(7, b"8"));
    full(put(&ruled, "/three"));
}

#[test]
fn nobody_under_rules_makes_a_program_that_runs_as_the_account() {
    let tree = Tree::new();
    let ruled = tree.ruled(false);
    let mode = |name: &str| std::fs::metadata(tree.root().join(name)).unwrap().permissions().mode() & 0o7777;
    let trusted = Attributes { mode: Some(0o7755), ..Attributes::default() };
    ruled.put(&path("/open/put"), b"code", &trusted, None).unwrap();
    for (name, disposition) in [("replaced", Disposition::Replace), ("updated", Disposition::Update)] {
        let intent = WriteIntent { disposition, size: None, length: None, mode: trusted.mode };
        let session = ruled.begin(&path(&format!("/open/{name}")), &intent).unwrap();
        ruled.join(&session).unwrap().write_at(0, b"code").unwrap();
        ruled.commit(&session, &[], &trusted).unwrap();
    }
    std::fs::create_dir(tree.root().join("open/group")).unwrap();
    for name in ["/open/file", "/open/group"] {
        ruled.set_attributes(&path(name), &trusted, Follow::Yes).unwrap();
    }
    assert_eq!(mode("open/group"), 0o7755, "there it says which group new files have");
    for name in ["put", "replaced", "updated", "file"] {
        assert_eq!(mode(&format!("open/{name}")), 0o1755, "{name}");
    }
}

/// What a storage makes beside a name while its file is unfinished.
fn unfinished(tree: &Tree, name: &str) -> Vec<String> {
    let storage = Posix::open(tree.root(), PosixOptions::default()).unwrap();
    let directory = tree.root().join("open");
    let names = || -> Vec<_> {
        let entries = std::fs::read_dir(&directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let before = names();
    let intent = WriteIntent { disposition: Disposition::Continue, size: None, length: None, mode: None };
    let session = storage.begin(&path(&format!("/open/{name}")), &intent).unwrap();
    storage.join(&session).unwrap().write_at(0, b"half").unwrap();
    storage.journal(&session).unwrap().append(b"proven").unwrap();
    names().into_iter().filter(|name| !before.contains(name)).collect()
}

/// The same of clients, as it lies at any server.
fn temporary_names(name: &str) -> Vec<String> {
    let version = temporary::Version::try_from(&b"0123456789abcdef"[..]).unwrap();
    let (run, path) = (RunId::fresh(), format!("/open/{name}"));
    let chunks = temporary::of_chunks(path.as_bytes(), run, &version);
    let all = [temporary::of_whole(path.as_bytes(), run), temporary::kept(&chunks), temporary::live(&chunks), chunks];
    all.map(|path| String::from_utf8(path).unwrap().rsplit('/').next().unwrap().to_owned()).into()
}

#[test]
fn what_is_unfinished_has_the_rules_of_the_name_that_it_stands_for() {
    let tree = Tree::new();
    let long = "n".repeat(250);
    let kept = ["kept.txt", long.as_str()];
    let mut hidden: Vec<_> = kept.iter().flat_map(|name| unfinished(&tree, name)).collect();
    assert_eq!(hidden.len(), 4, "{hidden:?}");
    hidden.extend(kept.iter().flat_map(|name| temporary_names(name)));
    // Of a client's own file, which a storage writes under a name of its own.
    hidden.extend(temporary_names("kept.txt").first().into_iter().flat_map(|name| unfinished(&tree, name)));
    for name in &hidden {
        std::fs::write(tree.root().join("open").join(name), "half").unwrap();
    }
    let rules = [
        PathRule::allow("/open", Operations::ALL),
        PathRule::deny("/open/kept.txt", Operations::ALL),
        PathRule::deny(format!("/open/{long}"), Operations::ALL),
        PathRule::allow("/open/.kept.txt.whimbrel-public", Operations::READING),
    ];
    let rules = PathRules::new(Operations::NONE, &rules).unwrap();
    let ruled = Ruled::new(Arc::new(Posix::open(tree.root(), PosixOptions::default()).unwrap()), rules, None);
    let attributes = Attributes { mode: Some(0o600), ..Attributes::default() };
    for name in &hidden {
        let name = &format!("/open/{name}");
        let at = path(name);
        denied(ruled.stat(&at, Follow::No));
        denied(read(&ruled, name));
        denied(put(&ruled, name));
        for disposition in [Disposition::Replace, Disposition::Update, Disposition::Continue] {
            denied(ruled.begin(&at, &WriteIntent { disposition, size: None, length: None, mode: None }));
        }
        denied(ruled.remove_file(&at));
        denied(ruled.make_dir(&at));
        denied(ruled.symlink(b"file", &at));
        denied(ruled.rename(&at, &path("/open/taken"), false));
        denied(ruled.rename(&path("/open/file"), &at, false));
        denied(ruled.set_attributes(&at, &attributes, Follow::Yes));
        denied(ruled.truncate(&at, 0));
        let token = WriteSession::of_unfinished(at, Vec::new(), None).unwrap();
        denied(ruled.journal(&token).map(drop));
        denied(ruled.join(&token).map(drop));
    }
    let listed: Vec<_> = ruled.list(&path("/open")).unwrap().map(|entry| entry.unwrap().name).collect();
    let shown = |name: &String| listed.contains(&name.clone().into_bytes());
    assert!(!hidden.iter().any(shown) && shown(&"file".to_owned()), "{listed:?}");
    // A rule for the hidden name itself counts, and what rules are not about is like anything else.
    std::fs::write(tree.root().join("open/.kept.txt.whimbrel-public"), "shown").unwrap();
    assert_eq!(read(&ruled, "/open/.kept.txt.whimbrel-public").unwrap(), "shown");
    for name in unfinished(&tree, "other") {
        let name = format!("/open/{name}");
        assert_eq!(
            put(&ruled, &name).unwrap_err().code,
            FaultCode::InvalidPath,
            "storage's own names are nobody else's"
        );
        std::fs::write(tree.root().join(&name[1..]), "left").unwrap();
        ruled.rename(&path(&name), &path("/open/other"), false).unwrap();
    }
    for name in &temporary_names("kept") {
        put(&ruled, &format!("/open/{name}")).unwrap();
        ruled.rename(&path(&format!("/open/{name}")), &path("/open/other"), false).unwrap();
    }
}

#[test]
fn a_name_that_alone_is_allowed_may_be_written_under_another_first() {
    let tree = Tree::new();
    let rules = [PathRule::allow("/open/out", Operations::ALL)];
    let rules = PathRules::new(Operations::NONE, &rules).unwrap();
    let ruled = Ruled::new(Arc::new(Posix::open(tree.root(), PosixOptions::default()).unwrap()), rules, None);
    for name in temporary_names("out") {
        let name = format!("/open/{name}");
        put(&ruled, &name).unwrap();
        ruled.rename(&path(&name), &path("/open/out"), false).unwrap();
    }
    assert_eq!(read(&ruled, "/open/out").unwrap(), "new");
    denied(put(&ruled, "/open/.other.whimbrel-part"));
}
