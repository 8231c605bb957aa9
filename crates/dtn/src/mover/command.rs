//! Operations on names: everything but transfers, listings and checksums.

use whimbrel_connector::{Attributes, Connector, Follow, Kind, Meta, StoragePath, Timestamp};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Op, Outcome};

use super::{failure, holes};

/// Resolves a path of an operation inside the collection.
pub fn resolve(path: &[u8]) -> Result<StoragePath, Fault> {
    StoragePath::resolve(&StoragePath::root(), path).map_err(|error| failure::bad_path(&error, path))
}

/// Whether an operation changes what is stored.
pub fn changes(op: &Op) -> bool {
    match op {
        Op::Receive(_) | Op::ReceivePack(_) | Op::MakeDirectory(_) | Op::RemoveDirectory(_) | Op::Delete(_) => true,
        Op::DeleteTree(_) | Op::Rename { .. } | Op::SetModified { .. } | Op::SetMode { .. } => true,
        Op::SetGroup { .. } | Op::Symlink { .. } | Op::Truncate { .. } => true,
        Op::OpenChunked(_) | Op::KeepLeaves { .. } | Op::KeepHoles { .. } => true,
        Op::CommitChunked { .. } | Op::DropChunked { .. } | Op::Sync(_) => true,
        Op::Extents { .. } => false,
        Op::Probe(probe) => probe.kind.writes(),
        Op::Passive { .. } | Op::Active { .. } | Op::CloseData | Op::DataCredential(_) | Op::Relay(_) => false,
        Op::Send(_) | Op::SendPack(_) => false,
        Op::SendListing(_) | Op::Listing(_) | Op::Facts { .. } | Op::Size(_) => false,
        Op::Modified(_) | Op::EnterDirectory(_) | Op::Exists(_) | Op::Checksum { .. } => false,
    }
}

/// Carries out an operation on names; `None` when `op` is none. `durable`: what is renamed must survive a crash.
pub fn run(connector: &dyn Connector, op: &Op, durable: bool) -> Option<Result<Outcome, Fault>> {
    Some(match op {
        Op::Size(path) => size(connector, path),
        Op::Modified(path) => modified(connector, path),
        Op::EnterDirectory(path) => enter(connector, path),
        Op::Exists(path) => exists(connector, path),
        Op::Extents { path, leaf } => holes::extents(connector, path, *leaf),
        _ => return change(connector, op, durable).map(|result| result.map(|()| done(op))),
    })
}

fn change(connector: &dyn Connector, op: &Op, durable: bool) -> Option<Result<(), Fault>> {
    Some(match op {
        Op::MakeDirectory(path) => on(path, |path| connector.make_dir(path)),
        Op::RemoveDirectory(path) => on(path, |path| connector.remove_dir(path)),
        Op::Delete(path) => on(path, |path| connector.remove_file(path)),
        Op::DeleteTree(path) => on(path, |path| connector.remove_tree(path)),
        Op::Sync(path) => on(path, |path| connector.sync(path)),
        Op::Rename { from, to } => on(from, |from| on(to, |to| connector.rename(from, to, durable))),
        Op::Symlink { target, link } => on(link, |link| connector.symlink(target, link)),
        Op::Truncate { path, size } => on(path, |path| connector.truncate(path, *size)),
        Op::SetModified { .. } | Op::SetMode { .. } | Op::SetGroup { .. } => set_attributes(connector, op),
        _ => return None,
    })
}

fn on<T>(path: &[u8], act: impl FnOnce(&StoragePath) -> Result<T, Fault>) -> Result<T, Fault> {
    act(&resolve(path)?)
}

fn done(op: &Op) -> Outcome {
    match op {
        Op::MakeDirectory(path) => match resolve(path) {
            Ok(path) => Outcome::Directory(path.as_bytes().to_vec()),
            Err(fault) => failure::outcome(&fault),
        },
        _ => Outcome::Done,
    }
}

fn stat(connector: &dyn Connector, path: &[u8]) -> Result<(StoragePath, Meta), Fault> {
    let path = resolve(path)?;
    let meta = connector.stat(&path, Follow::Yes)?;
    Ok((path, meta))
}

/// RFC 3659 §4: the size of what RETR would send; a directory has none.
fn size(connector: &dyn Connector, path: &[u8]) -> Result<Outcome, Fault> {
    let (path, meta) = stat(connector, path)?;
    match meta.kind {
        Kind::Directory => Err(Fault::new(FaultCode::IsADirectory, "size").on_path(path.as_bytes())),
        _ => Ok(Outcome::Size(meta.size)),
    }
}

fn modified(connector: &dyn Connector, path: &[u8]) -> Result<Outcome, Fault> {
    let (_, meta) = stat(connector, path)?;
    let at = meta.modified;
    Ok(Outcome::Modified(at.seconds, at.nanoseconds))
}

fn enter(connector: &dyn Connector, path: &[u8]) -> Result<Outcome, Fault> {
    let (path, meta) = stat(connector, path)?;
    if meta.kind != Kind::Directory {
        let fault = Fault::new(FaultCode::NotADirectory, "change directory");
        return Err(fault.on_path(path.as_bytes()));
    }
    Ok(Outcome::Directory(path.as_bytes().to_vec()))
}

/// A link that points nowhere exists: it can be renamed.
fn exists(connector: &dyn Connector, path: &[u8]) -> Result<Outcome, Fault> {
    connector.stat(&resolve(path)?, Follow::No)?;
    Ok(Outcome::Done)
}

fn set_attributes(connector: &dyn Connector, op: &Op) -> Result<(), Fault> {
    let mut attributes = Attributes::default();
    let path = match op {
        Op::SetModified { path, seconds, nanoseconds } => {
            attributes.modified = Some(timestamp(*seconds, *nanoseconds)?);
            path
        }
        Op::SetMode { path, mode } => {
            attributes.mode = Some(permission_bits(*mode)?);
            path
        }
        Op::SetGroup { path, group } => {
            attributes.group = Some(group.clone());
            path
        }
        _ => return Err(Fault::new(FaultCode::Internal, "set attributes")),
    };
    on(path, |path| connector.set_attributes(path, &attributes, Follow::Yes))
}

/// A modification time as storage takes it.
pub fn timestamp(seconds: i64, nanoseconds: u32) -> Result<Timestamp, Fault> {
    if nanoseconds >= 1_000_000_000 {
        let fault = Fault::new(FaultCode::InvalidArgument, "set modification time");
        return Err(fault.detail("nanoseconds above 999,999,999"));
    }
    Ok(Timestamp { seconds, nanoseconds })
}

/// Permission bits as storage takes them.
pub fn permission_bits(mode: u32) -> Result<u32, Fault> {
    if mode > 0o7777 {
        let fault = Fault::new(FaultCode::InvalidArgument, "set permissions");
        return Err(fault.detail(format!("{mode:o} is no permission mode")));
    }
    Ok(mode)
}
