//! A directory tree to serve, and short forms.
#![allow(missing_docs, dead_code, clippy::unwrap_used)]

use std::fs;
use std::thread;

use tempfile::TempDir;
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_connector::{Attributes, Connector, Disposition, StoragePath, WriteIntent, WriteSession};
use whimbrel_engine::{Fault, FaultCode};

pub struct Lab {
    pub dir: TempDir,
}

impl Lab {
    /// A root `root` and a secret outside of it.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret"), "secret").unwrap();
        Self { dir }
    }

    pub fn host(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("root").join(name)
    }

    pub fn secret(&self) -> String {
        fs::read_to_string(self.dir.path().join("outside/secret")).unwrap()
    }

    pub fn open(&self, options: PosixOptions) -> Posix {
        Posix::open(&self.host(""), options).unwrap()
    }

    /// The storage with the kernel's path resolution and with our own.
    pub fn both(&self) -> [Posix; 2] {
        [false, true].map(|without_openat2| self.open(PosixOptions { without_openat2, ..PosixOptions::default() }))
    }
}

pub fn path(bytes: impl AsRef<[u8]>) -> StoragePath {
    StoragePath::resolve(&StoragePath::root(), bytes.as_ref()).unwrap()
}

pub fn intent(disposition: Disposition) -> WriteIntent {
    WriteIntent { disposition, size: None, length: None, mode: None }
}

pub fn begin(storage: &Posix, name: &str) -> Result<WriteSession, Fault> {
    storage.begin(&path(name), &intent(Disposition::Replace))
}

pub fn store(storage: &Posix, name: &str, data: &[u8]) -> Result<(), Fault> {
    let session = begin(storage, name)?;
    storage.join(&session)?.write_at(0, data)?;
    storage.commit(&session, &[], &Attributes::default())?;
    Ok(())
}

pub fn code<T>(result: Result<T, Fault>) -> FaultCode {
    match result {
        Ok(_) => panic!("should have been refused"),
        Err(fault) => fault.code,
    }
}

/// Runs as somebody without rights: only this thread changes its user.
pub fn unprivileged(act: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let uid = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            act();
        });
    });
}
