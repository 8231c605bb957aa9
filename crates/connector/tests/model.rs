//! Random sequences of operations have the same outcome on POSIX and in memory.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_connector::memory::Memory;
use whimbrel_connector::posix::{DirectOptions, Posix, PosixOptions};
use whimbrel_connector::{
    Attributes, Connector, Disposition, Follow, Kind, StoragePath, Timestamp, WriteIntent, WriteSession,
};
use whimbrel_engine::{Fault, FaultCode};

#[derive(Debug, Clone)]
enum Step {
    Begin(StoragePath, Disposition),
    /// On one of the sessions begun so far.
    Write(usize, u16, u8, u8),
    Commit(usize, Option<u16>, Option<u32>),
    Abandon(usize),
    Journal(usize, u8),
    Unfinished(StoragePath),
    MakeDir(StoragePath),
    RemoveDir(StoragePath),
    RemoveFile(StoragePath),
    RemoveTree(StoragePath),
    Rename(StoragePath, StoragePath),
    Symlink(&'static str, StoragePath),
    Touch(StoragePath, Follow, Option<u32>, i32),
    Truncate(StoragePath, u16),
    Stat(StoragePath, Follow),
    Read(StoragePath, u16),
    List(StoragePath),
}

/// Few names, so that operations meet.
fn path() -> impl Strategy<Value = StoragePath> {
    let name = prop_oneof![
        3 => Just("a"),
        3 => Just("b"),
        2 => Just("link"),
        1 => Just(".a.whimbrel-part"),
    ];
    vec(name, 0..4).prop_map(|names| StoragePath::resolve(&StoragePath::root(), names.join("/").as_bytes()).unwrap())
}

fn target() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "b",
        "link",
        "/a",
        "/b/a",
        "..",
        "../b",
        "../../../a",
        "a/../b",
        ".",
        "/",
        "gone",
        "a/b",
    ])
}

fn follow() -> impl Strategy<Value = Follow> {
    prop_oneof![Just(Follow::Yes), Just(Follow::No)]
}

fn disposition() -> impl Strategy<Value = Disposition> {
    prop::sample::select(vec![
        Disposition::Replace,
        Disposition::Resume,
        Disposition::Update,
        Disposition::Continue,
        Disposition::Continue,
    ])
}

fn mode() -> impl Strategy<Value = Option<u32>> {
    proptest::option::of(0o600u32..0o777)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (path(), disposition()).prop_map(|(p, d)| Step::Begin(p, d)),
        6 => (0..8usize, 0..9000u16, 1..200u8, any::<u8>()).prop_map(|(s, o, n, b)| Step::Write(s, o, n, b)),
        5 => (0..8usize, proptest::option::of(0..9000u16), mode()).prop_map(|(s, n, m)| Step::Commit(s, n, m)),
        1 => (0..8usize).prop_map(Step::Abandon),
        4 => (0..8usize, any::<u8>()).prop_map(|(s, b)| Step::Journal(s, b)),
        1 => path().prop_map(Step::Unfinished),
        6 => path().prop_map(Step::MakeDir),
        1 => path().prop_map(Step::RemoveDir),
        1 => path().prop_map(Step::RemoveFile),
        1 => path().prop_map(Step::RemoveTree),
        4 => (path(), path()).prop_map(|(a, b)| Step::Rename(a, b)),
        4 => (target(), path()).prop_map(|(t, p)| Step::Symlink(t, p)),
        2 => (path(), follow(), mode(), any::<i32>()).prop_map(|(p, f, m, t)| Step::Touch(p, f, m, t)),
        2 => (path(), 0..9000u16).prop_map(|(p, n)| Step::Truncate(p, n)),
        3 => (path(), follow()).prop_map(|(p, f)| Step::Stat(p, f)),
        3 => (path(), 0..9000u16).prop_map(|(p, o)| Step::Read(p, o)),
        2 => path().prop_map(Step::List),
    ]
}

/// One storage with the sessions begun on it.
struct Side<'a> {
    storage: &'a dyn Connector,
    sessions: Vec<WriteSession>,
}

type Outcome = Result<String, FaultCode>;

impl Side<'_> {
    fn apply(&mut self, step: &Step) -> Outcome {
        // An open session follows its directory on POSIX, its path in memory: neither is promised.
        if let Step::RemoveDir(_) | Step::RemoveFile(_) | Step::RemoveTree(_) | Step::Rename(..) = step {
            self.sessions.clear();
        }
        self.try_step(step).map_err(|fault| fault.code)
    }

    /// Does one step; the answer holds what both kinds of storage must agree on.
    fn try_step(&mut self, step: &Step) -> Result<String, Fault> {
        let storage = self.storage;
        let done = |()| String::new();
        match step {
            Step::Begin(path, disposition) => self.begin(path, *disposition),
            Step::Write(session, offset, count, byte) => {
                let Some(session) = self.sessions.get(*session) else {
                    return Ok(String::new());
                };
                // Whether a writer learns at once or at commit that it was replaced is not promised.
                let written = storage.join(session).and_then(|writer| {
                    let bytes = vec![*byte; usize::from(*count)];
                    writer.write_at(u64::from(*offset), &bytes)
                });
                match written {
                    Err(fault) if fault.code != FaultCode::StorageBusy => Err(fault),
                    _ => Ok(String::new()),
                }
            }
            Step::Commit(session, size, mode) => {
                let attributes = Attributes { size: size.map(u64::from), mode: *mode, ..Attributes::default() };
                let Some(session) = self.sessions.get(*session) else {
                    return Ok(String::new());
                };
                storage.commit(session, &[], &attributes).map(done)
            }
            Step::Abandon(session) => match self.sessions.get(*session) {
                Some(session) => storage.abandon(session).map(done),
                None => Ok(String::new()),
            },
            Step::Journal(session, byte) => {
                let Some(session) = self.sessions.get(*session) else {
                    return Ok(String::new());
                };
                let journal = storage.journal(session)?;
                let before = journal.read()?;
                journal.append(&[*byte])?;
                Ok(format!("{before:?} {:?}", journal.read()?))
            }
            Step::Unfinished(path) => {
                let size = storage.unfinished(path)?.map(|meta| meta.size);
                Ok(format!("{size:?}"))
            }
            Step::MakeDir(path) => storage.make_dir(path).map(done),
            Step::RemoveDir(path) => storage.remove_dir(path).map(done),
            Step::RemoveFile(path) => storage.remove_file(path).map(done),
            Step::RemoveTree(path) => storage.remove_tree(path).map(done),
            Step::Rename(from, to) => storage.rename(from, to, false).map(done),
            Step::Symlink(target, link) => storage.symlink(target.as_bytes(), link).map(done),
            Step::Touch(path, follow, mode, time) => self.touch(path, *follow, *mode, *time),
            Step::Truncate(path, size) => storage.truncate(path, u64::from(*size)).map(done),
            Step::Stat(path, follow) => {
                let meta = storage.stat(path, *follow)?;
                let size = (meta.kind == Kind::File).then_some(meta.size);
                Ok(format!("{:?} {size:?} {:?}", meta.kind, meta.link_target))
            }
            Step::Read(path, offset) => {
                let mut buffer = [9; 300];
                let reader = storage.open_read(path, None)?;
                let count = reader.read_at(u64::from(*offset), &mut buffer)?;
                Ok(format!("{:?}", &buffer[..count]))
            }
            Step::List(path) => list(storage, path),
        }
    }

    fn begin(&mut self, path: &StoragePath, disposition: Disposition) -> Result<String, Fault> {
        let intent = WriteIntent { disposition, size: None, length: None, mode: None };
        let session = self.storage.begin(path, &intent)?;
        let told = format!("{:?} {}", session.path.name(), session.rename);
        if self.sessions.len() == 8 {
            self.sessions.remove(0);
        }
        self.sessions.push(session);
        Ok(told)
    }

    fn touch(&self, path: &StoragePath, follow: Follow, mode: Option<u32>, seconds: i32) -> Result<String, Fault> {
        let modified = Timestamp { seconds: i64::from(seconds), nanoseconds: seconds.unsigned_abs() % 1_000_000_000 };
        let attributes = Attributes { mode, modified: Some(modified), ..Attributes::default() };
        self.storage.set_attributes(path, &attributes, follow)?;
        let meta = self.storage.stat(path, follow)?;
        Ok(format!("{:?} {:?}", meta.modified, mode.map(|_| meta.mode)))
    }
}

/// Journals are named after inodes, which differ.
fn general(name: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(name);
    match text.split_once(".whimbrel-journal-") {
        Some((of, _)) => format!("{of}.whimbrel-journal").into_bytes(),
        None => name.to_vec(),
    }
}

fn list(storage: &dyn Connector, path: &StoragePath) -> Result<String, Fault> {
    let mut entries = BTreeMap::new();
    for entry in storage.list(path)? {
        let entry = entry?;
        entries.insert(general(&entry.name), entry.meta.kind);
    }
    Ok(format!("{entries:?}"))
}

/// Everything there is, with content.
fn picture(storage: &dyn Connector, at: &StoragePath, into: &mut BTreeMap<Vec<u8>, String>) {
    for entry in storage.list(at).unwrap() {
        let entry = entry.unwrap();
        let path = at.join(&entry.name).unwrap();
        let meta = entry.meta;
        let facts = match meta.kind {
            Kind::File => {
                let mut data = vec![0; meta.size as usize + 1];
                let reader = storage.open_read(&path, None).unwrap();
                let count = reader.read_at(0, &mut data).unwrap();
                data.truncate(count);
                format!("{data:?} {}", meta.size)
            }
            Kind::Directory => {
                picture(storage, &path, into);
                "directory".into()
            }
            _ => format!("{:?}", meta.link_target),
        };
        let mut name = general(path.as_bytes());
        if name != path.as_bytes() {
            // One that lost its file by hand may lie beside it.
            name.extend_from_slice(facts.as_bytes());
        }
        into.insert(name, facts);
    }
}

fn compare(steps: &[Step], without_openat2: bool, past_cache: bool) {
    let in_memory = if past_cache { None } else { tempfile::tempdir_in("/dev/shm").ok() };
    let dir = in_memory.unwrap_or_else(|| tempfile::tempdir().unwrap());
    let direct = past_cache.then_some(DirectOptions { from: 0, piece: 4096, pieces: 2 });
    let options = PosixOptions { without_openat2, direct, ..PosixOptions::default() };
    let posix = Posix::open(dir.path(), options).unwrap();
    let memory = Memory::new();
    let side = |storage| Side { storage, sessions: Vec::new() };
    let (mut real, mut model) = (side(&posix), side(&memory));
    for (at, step) in steps.iter().enumerate() {
        let (real, model) = (real.apply(step), model.apply(step));
        assert_eq!(real, model, "step {at}: {step:?}");
    }
    let (mut real, mut model) = (BTreeMap::new(), BTreeMap::new());
    picture(&posix, &StoragePath::root(), &mut real);
    picture(&memory, &StoragePath::root(), &mut model);
    assert_eq!(real, model, "in the end");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(600)
    })]

    #[test]
    fn posix_and_memory_agree(steps in vec(step(), 1..60), without_openat2: bool, past_cache: bool) {
        compare(&steps, without_openat2, past_cache);
    }
}
