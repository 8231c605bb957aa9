//! Looks at a whole directory tree, here or on a server.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use whimbrel_engine::follow::{Names, Version};
use whimbrel_engine::listing::{Object, ObjectKind, Timestamp, join};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::watch::Directories;
use crate::client::end::{End, ends_session};

/// A file that was found, by its path relative to the root.
pub type Found = (Vec<u8>, Version);

/// What a scan saw.
#[derive(Debug, Default)]
pub struct Sight {
    /// The regular files.
    pub files: Vec<Found>,
    /// Directories that could not be read, or not wholly, by their paths relative to the root: what is below them is
    /// unknown.
    pub unread: Vec<(Vec<u8>, Fault)>,
}

/// The regular files below `starts`, relative directories of `root` on this host; with `watched`, each directory is
/// watched before it is listed. Symbolic links are left out, and what vanishes meanwhile.
///
/// # Errors
/// The root cannot be listed.
pub fn scan_local(
    root: &Path,
    starts: Vec<Vec<u8>>,
    names: &Names,
    watched: Option<&Directories>,
) -> Result<Sight, Fault> {
    let mut sight = Sight::default();
    let mut directories = starts;
    while let Some(directory) = directories.pop() {
        if let Some(watched) = watched {
            watched.add(&directory);
        }
        let path = absolute(root, &directory);
        match fs::read_dir(&path) {
            Ok(entries) => {
                for entry in entries {
                    match take_local(root, &directory, entry, names, &mut sight.files) {
                        Ok(below) => directories.extend(below),
                        Err(fault) => sight.add_unread(&directory, fault),
                    }
                }
            }
            Err(error) if directory.is_empty() => return Err(unseen(error, &path)),
            Err(error) => sight.take_instead(directory, error, &path),
        }
    }
    Ok(sight)
}

impl Sight {
    /// Of several reasons the first is enough.
    fn add_unread(&mut self, directory: &[u8], fault: Fault) {
        if self.unread.last().is_none_or(|(last, _)| last != directory) {
            self.unread.push((directory.to_vec(), fault));
        } else {
            tracing::debug!(%fault, "nor was this");
        }
    }

    /// Takes what is there instead of a directory that cannot be opened although it was listed a moment ago.
    fn take_instead(&mut self, directory: Vec<u8>, error: io::Error, path: &Path) {
        if is_gone(&error) {
            match fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_file() => return self.files.push((directory, version(&metadata))),
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => return,
                Err(error) if is_gone(&error) => return,
                Err(error) => return self.unread.push((directory, unseen(error, path))),
            }
        }
        self.unread.push((directory, unseen(error, path)));
    }
}

/// Takes one entry of a directory; returns its path if it is a directory.
fn take_local(
    root: &Path,
    directory: &[u8],
    entry: io::Result<DirEntry>,
    names: &Names,
    files: &mut Vec<Found>,
) -> Result<Option<Vec<u8>>, Fault> {
    let entry = entry.map_err(|error| unseen(error, &absolute(root, directory)))?;
    let path = join(directory, &entry.file_name().into_vec());
    if !names.wanted(&path) {
        return Ok(None);
    }
    let metadata = match entry.file_type() {
        Ok(kind) if kind.is_dir() => return Ok(Some(path)),
        Ok(kind) if !kind.is_file() => return Ok(None),
        Ok(_) => entry.metadata(),
        Err(error) => Err(error),
    };
    match metadata {
        Ok(metadata) if metadata.is_file() => files.push((path, version(&metadata))),
        Ok(_) => {}
        // What vanishes meanwhile was not finished.
        Err(error) if is_gone(&error) => {}
        Err(error) => return Err(unseen(error, &absolute(root, &path))),
    }
    Ok(None)
}

/// The version of a regular file on this host; `None`: there is none.
///
/// # Errors
/// Nobody can say.
pub fn look(root: &Path, path: &[u8]) -> Result<Option<Version>, Fault> {
    let path = absolute(root, path);
    match fs::symlink_metadata(&path) {
        Ok(metadata) => Ok(metadata.is_file().then(|| version(&metadata))),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(unseen(error, &path)),
    }
}

fn absolute(root: &Path, path: &[u8]) -> PathBuf {
    match path {
        b"" => root.to_owned(),
        path => root.join(OsStr::from_bytes(path)),
    }
}

/// Whether nothing has the name any more, or has it in a file that was a directory.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn unseen(error: io::Error, path: &Path) -> Fault {
    Fault::from_io(error, "scan").on_path(path.as_os_str().as_bytes()).side(Side::Source)
}

fn version(metadata: &Metadata) -> Version {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Version { size: Some(metadata.len()), modified: Some(Timestamp { secs: metadata.mtime(), nanos }) }
}

/// The regular files below `starts`, relative directories of `root` on a server. Symbolic links are left out, and what
/// vanishes meanwhile.
///
/// # Errors
/// The root cannot be listed, or the session broke.
pub async fn scan_remote(end: &mut End, root: &[u8], starts: Vec<Vec<u8>>, names: &Names) -> Result<Sight, Fault> {
    let mut sight = Sight::default();
    let mut directories = starts;
    while let Some(directory) = directories.pop() {
        let listed = list_remote(end, root, &directory, names, &mut sight.files, &mut directories).await;
        let fault = match listed {
            Ok(()) => continue,
            Err(fault) if ends_session(&fault) => return Err(fault),
            // What can be understood of the root is followed, too.
            Err(fault) if directory.is_empty() && fault.code != FaultCode::ListingUnclear => return Err(fault),
            Err(fault) if matches!(fault.code, FaultCode::NotFound | FaultCode::NotADirectory) => fault,
            Err(fault) => {
                sight.unread.push((directory, fault));
                continue;
            }
        };
        // It was listed a moment ago: gone, unless the directory above still names it.
        match look_remote(end, root, &directory).await {
            Ok(Some((ObjectKind::File, version))) => sight.files.push((directory, version)),
            Ok(Some((ObjectKind::Directory, _))) => sight.unread.push((directory, fault)),
            Ok(_) => {}
            Err(fault) if ends_session(&fault) => return Err(fault),
            Err(fault) => sight.unread.push((directory, fault)),
        }
    }
    Ok(sight)
}

async fn list_remote(
    end: &mut End,
    root: &[u8],
    directory: &[u8],
    names: &Names,
    files: &mut Vec<Found>,
    directories: &mut Vec<Vec<u8>>,
) -> Result<(), Fault> {
    let take = async |objects: Vec<(Object, _)>| {
        for (object, _) in objects {
            let path = join(directory, &object.path);
            match object.kind {
                _ if !names.wanted(&path) => {}
                ObjectKind::Directory => directories.push(path),
                ObjectKind::File => files.push((path, Version { size: object.size, modified: object.modified })),
                ObjectKind::Symlink { .. } | ObjectKind::Other => {}
            }
        }
        Ok(())
    };
    let listed = end.list(&join(root, directory), true, take).await;
    listed.map_err(|fault| fault.side_if_unknown(Side::Source))
}

/// What the directory above says of a path; `None`: nothing is there.
async fn look_remote(end: &mut End, root: &[u8], path: &[u8]) -> Result<Option<(ObjectKind, Version)>, Fault> {
    let (parent, name) = path
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or((&b""[..], path), |slash| (&path[..slash], &path[slash + 1..]));
    let mut found = None;
    let take = async |objects: Vec<(Object, _)>| {
        let same = objects.into_iter().find(|(object, _)| object.path == name);
        if let Some((object, _)) = same {
            found = Some((object.kind, Version { size: object.size, modified: object.modified }));
        }
        Ok(())
    };
    match end.list(&join(root, parent), true, take).await {
        Err(fault) if fault.code != FaultCode::NotFound => Err(fault.side_if_unknown(Side::Source)),
        _ => Ok(found),
    }
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
        let sight = scan_local(root.path(), vec![Vec::new()], &Names::default(), None).unwrap();
        assert!(sight.unread.is_empty());
        let mut found = sight.files;
        found.sort_by(|left, right| left.0.cmp(&right.0));
        let sizes: Vec<_> = found.into_iter().map(|(path, version)| (path, version.size)).collect();
        assert_eq!(sizes, [(b"a/b/y".to_vec(), Some(5)), (b"x".to_vec(), Some(1))]);
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_told_and_one_that_is_gone_or_a_file_by_now_is_not() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), "x").unwrap();
        // Longer than any name may be: refused to everybody.
        let refused = vec![b'n'; 300];
        let starts = [&b"gone"[..], b"file", &refused].map(<[u8]>::to_vec).to_vec();
        let sight = scan_local(root.path(), starts, &Names::default(), None).unwrap();
        assert_eq!(sight.files.iter().map(|(path, _)| &path[..]).collect::<Vec<_>>(), [b"file"]);
        let [(path, fault)] = &sight.unread[..] else { panic!("{:?}", sight.unread) };
        assert_eq!((path, fault.code, fault.side), (&refused, FaultCode::InvalidPath, Some(Side::Source)));
    }

    #[test]
    fn a_look_at_what_is_gone_finds_nothing_and_at_what_cannot_be_seen_is_a_fault() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(look(root.path(), b"gone").unwrap(), None);
        assert_eq!(look(root.path(), &[b'n'; 300]).unwrap_err().code, FaultCode::InvalidPath);
    }

    #[test]
    fn a_missing_root_is_the_sources_fault() {
        let fault = scan_local(Path::new("/nonexistent/x"), vec![Vec::new()], &Names::default(), None).unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::NotFound, Some(Side::Source)));
    }
}
