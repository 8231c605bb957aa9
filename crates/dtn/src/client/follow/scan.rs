//! Looks at a whole directory tree, here or on a server.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use whimbrel_engine::follow::{Names, Version};
use whimbrel_engine::listing::{ObjectKind, Timestamp, join};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::watch::Directories;
use crate::client::end::End;

/// A file that was found, by its path relative to the root.
pub type Found = (Vec<u8>, Version);

/// The regular files below `starts`, relative directories of `root` on this host; with `watched`, each directory is
/// watched before it is listed. Symbolic links are left out.
///
/// # Errors
/// The root cannot be listed; other directories may have vanished meanwhile.
pub fn scan_local(
    root: &Path,
    starts: Vec<Vec<u8>>,
    names: &Names,
    watched: Option<&Directories>,
) -> Result<Vec<Found>, Fault> {
    let mut found = Vec::new();
    let mut directories = starts;
    while let Some(directory) = directories.pop() {
        if let Some(watched) = watched {
            watched.add(&directory);
        }
        let listed = list_local(root, &directory, names, &mut found, &mut directories);
        match listed {
            Ok(()) => {}
            Err(error) if directory.is_empty() => {
                let root = root.as_os_str().as_bytes();
                return Err(Fault::from_io(error, "scan").on_path(root).side(Side::Source));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, directory = %String::from_utf8_lossy(&directory), "cannot be scanned");
            }
        }
    }
    Ok(found)
}

fn list_local(
    root: &Path,
    directory: &[u8],
    names: &Names,
    found: &mut Vec<Found>,
    directories: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    for entry in fs::read_dir(root.join(OsStr::from_bytes(directory)))? {
        let entry = entry?;
        let path = join(directory, &entry.file_name().into_vec());
        if !names.wanted(&path) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            directories.push(path);
        } else if kind.is_file()
            // What vanishes meanwhile was not finished.
            && let Ok(metadata) = entry.metadata()
        {
            found.push((path, version(&metadata)));
        }
    }
    Ok(())
}

/// The version of a regular file on this host; `None`: there is none.
pub fn look(root: &Path, path: &[u8]) -> Option<Version> {
    let metadata = fs::symlink_metadata(root.join(OsStr::from_bytes(path))).ok()?;
    metadata.is_file().then(|| version(&metadata))
}

fn version(metadata: &Metadata) -> Version {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Version { size: Some(metadata.len()), modified: Some(Timestamp { secs: metadata.mtime(), nanos }) }
}

/// The regular files below a directory of a server. Symbolic links are left out.
///
/// # Errors
/// The root cannot be listed, or the session broke; other directories may have vanished meanwhile.
pub async fn scan_remote(end: &mut End, root: &[u8], names: &Names) -> Result<Vec<Found>, Fault> {
    let mut found = Vec::new();
    let mut directories = vec![Vec::new()];
    while let Some(directory) = directories.pop() {
        let listed = end
            .list(&join(root, &directory), true, async |objects| {
                for (object, _) in objects {
                    let path = join(&directory, &object.path);
                    match object.kind {
                        _ if !names.wanted(&path) => {}
                        ObjectKind::Directory => directories.push(path),
                        ObjectKind::File => {
                            found.push((path, Version { size: object.size, modified: object.modified }));
                        }
                        ObjectKind::Symlink { .. } | ObjectKind::Other => {}
                    }
                }
                Ok(())
            })
            .await;
        match listed {
            Err(fault) if directory.is_empty() || ends_session(&fault) => {
                return Err(fault.side_if_unknown(Side::Source));
            }
            Err(fault) if fault.code != FaultCode::NotFound => {
                tracing::warn!(%fault, directory = %String::from_utf8_lossy(&directory), "cannot be scanned");
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Whether nothing more can be asked on the session.
pub fn ends_session(fault: &Fault) -> bool {
    use FaultCode as F;
    matches!(fault.code, F::ConnectionLost | F::TimedOut | F::ServerBusy | F::PeerMisbehaved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_regular_files_at_every_depth_and_leaves_temporary_ones_out() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::create_dir(root.path().join(".hidden")).unwrap();
        for name in ["x", "a/b/y", "a/z.part", ".hidden/w"] {
            fs::write(root.path().join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("x", root.path().join("link")).unwrap();
        let mut found = scan_local(root.path(), vec![Vec::new()], &Names::default(), None).unwrap();
        found.sort_by(|left, right| left.0.cmp(&right.0));
        let sizes: Vec<_> = found.into_iter().map(|(path, version)| (path, version.size)).collect();
        assert_eq!(sizes, [(b"a/b/y".to_vec(), Some(5)), (b"x".to_vec(), Some(1))]);
    }

    #[test]
    fn a_missing_root_is_the_sources_fault() {
        let fault = scan_local(Path::new("/nonexistent/x"), vec![Vec::new()], &Names::default(), None).unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::NotFound, Some(Side::Source)));
    }
}
