//! Rules that every kind of storage here follows in the same words.

use whimbrel_engine::{Fault, FaultCode};

use crate::meta::{Kind, Version};
use crate::path::StoragePath;
use crate::session::Attributes;

/// Refuses to remove or rename the collection's root.
pub(crate) fn root_stays(op: &str) -> Fault {
    Fault::new(FaultCode::InvalidPath, op).subject("/").detail("the root of the collection stays")
}

/// Refuses values that no file can have; before anything is changed.
pub(crate) fn check(attributes: &Attributes, path: &StoragePath) -> Result<(), Fault> {
    let bad = |detail: &str| {
        Err(Fault::new(FaultCode::InvalidArgument, "set attributes").on_path(path.as_bytes()).detail(detail))
    };
    // -1 means "leave it" to the kernel.
    if attributes.group.as_deref().and_then(|g| g.parse().ok()) == Some(u32::MAX) {
        return bad("no group has this number");
    }
    if attributes.mode.is_some_and(|mode| mode > 0o7777) {
        return bad("a mode has at most twelve bits");
    }
    if attributes.modified.is_some_and(|time| time.nanoseconds >= 1_000_000_000) {
        return bad("a time has less than 1,000,000,000 nanoseconds");
    }
    Ok(())
}

/// Refuses the fields that only a commit understands.
pub(crate) fn check_commit_only(attributes: &Attributes, path: &StoragePath) -> Result<(), Fault> {
    if attributes.size.is_none() {
        return check(attributes, path);
    }
    Err(Fault::new(FaultCode::InvalidArgument, "set attributes")
        .on_path(path.as_bytes())
        .detail("a size is set by commit or truncate"))
}

pub(crate) fn link_has_no_mode(path: &StoragePath) -> Fault {
    Fault::new(FaultCode::NotSupported, "change mode")
        .on_path(path.as_bytes())
        .detail("a symbolic link has no mode of its own")
}

/// Refuses to cut what is no regular file.
pub(crate) fn can_be_cut(kind: Kind, path: &StoragePath) -> Result<(), Fault> {
    let code = match kind {
        Kind::File => return Ok(()),
        Kind::Directory => FaultCode::IsADirectory,
        _ => FaultCode::InvalidArgument,
    };
    Err(Fault::new(code, "truncate").on_path(path.as_bytes()))
}

/// Refuses a file that is no longer the version that was planned with.
pub(crate) fn expect_version(expected: &Version, found: &Version, path: &StoragePath) -> Result<(), Fault> {
    if expected == found {
        return Ok(());
    }
    let detail = format!(
        "expected {} bytes modified at {}, found {} bytes modified at {}",
        expected.size, expected.modified.seconds, found.size, found.modified.seconds
    );
    Err(Fault::new(FaultCode::SourceChanged, "open for reading").on_path(path.as_bytes()).detail(detail))
}

/// `offset + len`, when the kernel can address it.
pub(crate) fn end_of(offset: u64, len: usize) -> Option<u64> {
    offset.checked_add(len as u64).filter(|&end| end <= i64::MAX as u64)
}
