//! Where a tally lies: at a server, or on this host.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, OpId, Outcome, WriteKind};

use crate::client::data;
use crate::client::end::described;
use crate::client::hosts::Hosts;
use crate::client::options::Place;
use crate::client::sidecar::Dialling;
use crate::client::sidecar::sessions::{Sessions, in_time};
use crate::client::target::Target;

/// How long a storage may take to write out all that it has in memory.
const WRITING_OUT: Duration = Duration::from_secs(300);

/// Directories asked about ahead of the replies.
const AHEAD: usize = 100;

/// The file and what is needed to write it.
pub struct Home {
    sessions: Sessions,
    hosts: Rc<Hosts>,
    place: Place,
    /// Which file system directories are on, as far as that was asked.
    devices: HashMap<Vec<u8>, Option<String>>,
}

impl Home {
    /// No session is opened before something is to be done.
    pub fn new(dialling: Dialling, place: Place) -> Self {
        let hosts = dialling.hosts.clone();
        Self { sessions: Sessions::new(dialling), hosts, place, devices: HashMap::new() }
    }

    /// Ends the sessions, whatever is under way there; others are opened when there is something to do.
    pub fn hang_up(&mut self) {
        self.sessions.hang_up();
    }

    /// Has everything made durable that lies in these directories; returns those for which that was promised.
    pub async fn make_durable<'a>(&mut self, directories: impl Iterator<Item = &'a Vec<u8>>) -> HashSet<Vec<u8>> {
        let directories: Vec<_> = directories.cloned().collect();
        let Some(target) = self.place.target.clone() else { return made_durable_here(directories).await };
        match self.sessions.with(&target).await {
            Some(remote) if remote.features.has("SYNC") => {}
            _ => return HashSet::new(),
        }
        if let Err(fault) = self.learn_devices(&target, &directories).await {
            self.sessions.judge(&target, Err(fault));
            return HashSet::new();
        }
        let mut by_device: HashMap<String, Vec<Vec<u8>>> = HashMap::new();
        for directory in directories {
            if let Some(Some(device)) = self.devices.get(&directory) {
                by_device.entry(device.clone()).or_default().push(directory);
            }
        }
        let mut durable = HashSet::new();
        for directories in by_device.into_values() {
            if self.written_out(&target, &directories[0]).await {
                durable.extend(directories);
            }
        }
        durable
    }

    /// Whether every DTN of the endpoint has written out what it had of the file system of a directory.
    async fn written_out(&mut self, target: &Target, directory: &[u8]) -> bool {
        let dtns: Vec<_> = match target.others.is_empty() {
            true => vec![target.clone()],
            false => target.addresses().map(|address| target.at(address)).collect(),
        };
        for dtn in dtns {
            let Some(remote) = self.sessions.with(&dtn).await else { return false };
            let asked = timeout(WRITING_OUT, remote.run_long(Op::Sync(directory.to_vec()))).await;
            let late = || Fault::new(FaultCode::TimedOut, "make durable").side(Side::Destination);
            if let Err(fault) = asked.unwrap_or_else(|_| Err(late())) {
                tracing::debug!(%fault, "what is done cannot be made durable");
                if !fault.is_temporary() || fault.code == FaultCode::StorageBusy {
                    return false;
                }
                self.sessions.judge(&dtn, Err(fault));
                return false;
            }
            self.hosts.met(remote);
        }
        // What was stored before a host was started anew may be gone: of this run nothing more is promised.
        self.hosts.restarts() == 0
    }

    async fn learn_devices(&mut self, target: &Target, directories: &[Vec<u8>]) -> Result<(), Fault> {
        let new: Vec<_> = directories.iter().filter(|name| !self.devices.contains_key(*name)).cloned().collect();
        for some in new.chunks(AHEAD) {
            let Some(remote) = self.sessions.with(target).await else { return Ok(()) };
            let facts = |path: &Vec<u8>| Op::Facts { path: path.clone(), facts: None };
            let asked: Vec<OpId> = some.iter().map(|path| remote.submit(facts(path))).collect::<Result<_, _>>()?;
            for (path, id) in some.iter().zip(asked) {
                let answer: Result<Outcome, Fault> = in_time(remote.finish(id)).await;
                let unique = described(answer, path, false)?.and_then(|object| object.unique);
                let device = unique.and_then(|unique| Some(unique.rsplit_once('-')?.0.to_owned()));
                self.devices.insert(path.clone(), device);
            }
        }
        Ok(())
    }

    /// Writes behind the first `at` bytes; before the first of all, what `exists` goes.
    ///
    /// In place also when it begins: servers replace a file under a hidden name, and where they crash, or lose their power before
    /// the new name is durable, that would stay behind, where no later run looks for a tally.
    pub async fn store(&mut self, at: u64, bytes: &[u8], exists: bool) -> bool {
        let Some(target) = self.place.target.clone() else {
            let (path, bytes) = (here(&self.place.path), bytes.to_vec());
            return blocking(move || write(&path, at, &bytes)).await.is_ok();
        };
        let is_clear = at > 0 || !exists || self.remove().await;
        let path = &self.place.path;
        let Some(remote) = self.sessions.with(&target).await else { return false };
        let write = if is_clear { WriteKind::Adjusted { offset: at } } else { WriteKind::Replace };
        let mut stored = in_time(data::store_as(remote, path, write, bytes)).await;
        if at == 0 && is_clear && stored.as_ref().is_err_and(|fault| !fault.is_temporary()) {
            // Some storage only takes whole files.
            stored = in_time(data::store_as(remote, path, WriteKind::Replace, bytes)).await;
        }
        let done = stored.is_ok();
        self.sessions.judge(&target, stored);
        done
    }

    /// Removes the tally; whether nothing is there any more. That it cannot be removed is no fault.
    pub async fn remove(&mut self) -> bool {
        let path = self.place.path.clone();
        let gone = match &self.place.target {
            Some(target) => self.sessions.insist(target, &Op::Delete(path)).await.map(drop),
            None => blocking(move || fs::remove_file(here(&path))).await,
        };
        gone.or_else(|fault| if fault.code == FaultCode::NotFound { Ok(()) } else { Err(fault) })
            .inspect_err(|fault| tracing::debug!(%fault, "the tally stays"))
            .is_ok()
    }
}

fn here(path: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(path)).to_owned()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Fault> {
    let ended = tokio::task::spawn_blocking(work).await;
    let result = ended.unwrap_or_else(|_| Err(io::Error::other("the thread that wrote is gone")));
    result.map_err(|error| Fault::from_io(error, "keep what is done").side(Side::Destination))
}

async fn made_durable_here(directories: Vec<Vec<u8>>) -> HashSet<Vec<u8>> {
    let work = move || {
        let mut devices: HashMap<u64, bool> = HashMap::new();
        let mut durable = HashSet::new();
        for directory in directories {
            let Ok(file) = File::open(here(&directory)) else { continue };
            let device = file.metadata()?.dev();
            if *devices.entry(device).or_insert_with(|| rustix::fs::syncfs(&file).is_ok()) {
                durable.insert(directory);
            }
        }
        Ok(durable)
    };
    blocking(work).await.unwrap_or_default()
}

/// The bytes of a tally on this host.
pub async fn read_here(path: &[u8]) -> Result<Vec<u8>, Fault> {
    let path = here(path);
    blocking(move || fs::read(path)).await
}

fn write(path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(path)?;
    // What lies behind is of no use.
    file.set_len(at)?;
    file.write_all_at(bytes, at)?;
    file.sync_data()
}
