//! Short forms for the cases.

use whimbrel_engine::{Fault, FaultCode};

use crate::path::StoragePath;
use crate::session::{Attributes, Disposition, WriteIntent, WriteSession};
use crate::{Connector, Follow, Kind, Meta};

pub(super) const REPLACE: WriteIntent = intent(Disposition::Replace);
pub(super) const RESUME: WriteIntent = intent(Disposition::Resume);
pub(super) const UPDATE: WriteIntent = intent(Disposition::Update);
pub(super) const CONTINUE: WriteIntent = intent(Disposition::Continue);

const fn intent(disposition: Disposition) -> WriteIntent {
    WriteIntent { disposition, size: None, length: None, mode: None }
}

pub(super) fn path(bytes: impl AsRef<[u8]>) -> StoragePath {
    StoragePath::resolve(&StoragePath::root(), bytes.as_ref()).expect("a valid path")
}

/// Bytes that differ at every place within reach.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

#[track_caller]
pub(super) fn ok<T>(result: Result<T, Fault>) -> T {
    match result {
        Ok(value) => value,
        Err(fault) => panic!("should have succeeded: {fault}"),
    }
}

#[track_caller]
pub(super) fn refused<T>(result: Result<T, Fault>, code: FaultCode) {
    match result {
        Ok(_) => panic!("should have been refused with {}", code.name()),
        Err(fault) if fault.code == code => {}
        Err(fault) => panic!("should have been {}, was {}: {fault}", code.name(), fault.code.name()),
    }
}

/// Writes `data` at `offset` into a session.
#[track_caller]
pub(super) fn put(storage: &dyn Connector, session: &WriteSession, offset: u64, data: &[u8]) {
    let writer = ok(storage.join(session));
    ok(writer.write_at(offset, data));
    ok(writer.finish());
}

#[track_caller]
pub(super) fn commit(storage: &dyn Connector, session: &WriteSession) -> Meta {
    commit_as(storage, session, &Attributes::default())
}

/// Commits, and looks at what bears the final name.
#[track_caller]
pub(super) fn commit_as(storage: &dyn Connector, session: &WriteSession, attributes: &Attributes) -> Meta {
    ok(storage.commit(session, &[], attributes));
    ok(storage.stat(&session.path, Follow::No))
}

/// Writes a whole file and commits it.
#[track_caller]
pub(super) fn store(storage: &dyn Connector, name: &StoragePath, data: &[u8]) -> Meta {
    let session = ok(storage.begin(name, &REPLACE));
    put(storage, &session, 0, data);
    commit(storage, &session)
}

/// Reads a whole file.
#[track_caller]
pub(super) fn load(storage: &dyn Connector, name: &StoragePath) -> Vec<u8> {
    let reader = ok(storage.open_read(name, None));
    let mut data = vec![0xEE; ok(reader.meta()).size as usize + 10];
    let count = ok(reader.read_at(0, &mut data));
    data.truncate(count);
    data
}

#[track_caller]
pub(super) fn names(storage: &dyn Connector, dir: &StoragePath) -> Vec<Vec<u8>> {
    let listing = ok(storage.list(dir));
    let mut names: Vec<_> = listing.map(|entry| ok(entry).name).collect();
    names.sort();
    names
}

#[track_caller]
pub(super) fn kind(storage: &dyn Connector, name: &StoragePath) -> Kind {
    ok(storage.stat(name, Follow::No)).kind
}

#[track_caller]
pub(super) fn missing(storage: &dyn Connector, name: &StoragePath) {
    refused(storage.stat(name, Follow::No), FaultCode::NotFound);
}
