//! Files of the administrator, read whole: none may be longer than anybody needs it to be.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use whimbrel_engine::{Fault, FaultCode};

/// One that is open.
pub(crate) struct SmallFile {
    file: File,
    name: String,
    op: &'static str,
    most: u64,
}

impl SmallFile {
    /// Opens one of at most so many bytes, for `op`.
    ///
    /// # Errors
    /// Those of the file, with its name.
    pub(crate) fn open(path: &Path, op: &'static str, most: u64) -> Result<Self, Fault> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Fault::from_io(error, op).subject(&name))?;
        Ok(Self { file, name, op, most })
    }

    /// What the system says of it.
    pub(crate) fn facts(&self) -> Result<Metadata, Fault> {
        self.file.metadata().map_err(|error| Fault::from_io(error, self.op).subject(&self.name))
    }

    /// Refuses one that everybody may write.
    ///
    /// # Errors
    /// `NotAuthorized`.
    pub(crate) fn check_writers(&self) -> Result<(), Fault> {
        match self.facts()?.mode() & 0o002 {
            0 => Ok(()),
            _ => Err(self.refused(FaultCode::NotAuthorized, "everybody on this host may write it: chmod o-w")),
        }
    }

    /// The text that it holds.
    ///
    /// # Errors
    /// As [`Self::bytes`]; `InvalidArgument` for one that is not UTF-8.
    pub(crate) fn text(&self) -> Result<String, Fault> {
        String::from_utf8(self.bytes()?).map_err(|_| self.refused(FaultCode::InvalidArgument, "it is not UTF-8"))
    }

    /// What it holds.
    ///
    /// # Errors
    /// Also `InvalidArgument` for one that is longer.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        let read = (&self.file).take(self.most + 1).read_to_end(&mut bytes);
        read.map_err(|error| Fault::from_io(error, self.op).subject(&self.name))?;
        match bytes.len() as u64 > self.most {
            true => Err(self.refused(FaultCode::InvalidArgument, &format!("it is longer than {} bytes", self.most))),
            false => Ok(bytes),
        }
    }

    /// It may not be used.
    pub(crate) fn refused(&self, code: FaultCode, why: &str) -> Fault {
        Fault::new(code, self.op).subject(&self.name).detail(why)
    }
}

/// What a file of at most so many bytes holds.
///
/// # Errors
/// As [`SmallFile::open`] and [`SmallFile::bytes`].
pub(crate) fn read(path: &Path, op: &'static str, most: u64) -> Result<Vec<u8>, Fault> {
    SmallFile::open(path, op, most)?.bytes()
}

/// The same of a text.
///
/// # Errors
/// Also `InvalidArgument` for one that is not UTF-8.
pub(crate) fn read_text(path: &Path, op: &'static str, most: u64) -> Result<String, Fault> {
    SmallFile::open(path, op, most)?.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [b'a'; 10]).unwrap();
        assert_eq!(read(&path, "read", 10).unwrap(), [b'a'; 10]);
        let fault = read(&path, "read", 9).unwrap_err();
        assert_eq!((fault.code, fault.detail.as_str()), (FaultCode::InvalidArgument, "it is longer than 9 bytes"));
        assert_eq!(fault.subject, path.display().to_string());
        // One that has no length beforehand, and no end.
        assert_eq!(read(Path::new("/dev/zero"), "read", 1000).unwrap_err().code, FaultCode::InvalidArgument);
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text(&path, "read", 9).unwrap_err().detail, "it is not UTF-8");
        assert_eq!(read(&folder.path().join("none"), "read", 9).unwrap_err().code, FaultCode::NotFound);
    }
}
