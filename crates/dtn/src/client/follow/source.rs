//! The directory that is followed: here, with events, or on a server.

use std::ffi::OsStr;
use std::future::pending;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Instant;

use tokio::task::spawn_blocking;
use whimbrel_engine::follow::{Names, Version};
use whimbrel_engine::listing::ObjectKind;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::no_directory;
use super::scan::{self, Sight};
use super::watch::{Happened, Watch};
use crate::client::end::{End, ends_session};
use crate::client::local::LocalOptions;
use crate::client::options::{CopyOptions, Place};
use crate::client::target::SessionOptions;

/// A scan under way.
pub type Scan = Pin<Box<dyn Future<Output = Scanned>>>;

/// What came of a scan.
pub struct Scanned {
    /// What it saw, or why nothing.
    pub sight: Result<Sight, Fault>,
    /// What it began with, relative to the root; everything below was looked at.
    pub starts: Vec<Vec<u8>>,
    /// When it began.
    pub began: Instant,
    session: Option<End>,
}

/// The directory.
pub struct Source {
    place: Place,
    names: Names,
    session: SessionOptions,
    local: LocalOptions,
    /// Events, for a directory of this host.
    watch: Option<Watch>,
    /// The session that lists, when no scan has it.
    end: Option<End>,
}

impl Source {
    /// Looks whether it is a directory, and watches it.
    ///
    /// # Errors
    /// It is none, or its server cannot be reached.
    pub async fn open(place: &Place, names: Names, options: &CopyOptions) -> Result<Self, Fault> {
        let (session, local) = (options.session.clone(), options.local.clone());
        let mut source = Self { place: place.clone(), names, session, local, watch: None, end: None };
        if place.target.is_none() {
            let root = source.root();
            let metadata = std::fs::metadata(&root)
                .map_err(|error| Fault::from_io(error, "follow").on_path(&place.path).side(Side::Source))?;
            if !metadata.is_dir() {
                return Err(no_directory(place, true));
            }
            match Watch::new(&root, source.names.clone()) {
                Ok(watch) => source.watch = Some(watch),
                Err(error) => tracing::warn!(%error, "no events here: scans find the files"),
            }
        } else {
            let blame = |fault: Fault| fault.side_if_unknown(Side::Source);
            let mut end = End::open(place.target.as_ref(), &source.session, &source.local).await.map_err(blame)?;
            match end.stat(&place.path, false).await.map_err(blame)? {
                Some(object) if object.kind == ObjectKind::Directory => source.end = Some(end),
                other => return Err(no_directory(place, other.is_some())),
            }
        }
        Ok(source)
    }

    /// Whether events come.
    pub fn has_events(&self) -> bool {
        self.watch.is_some()
    }

    /// Whether single files are looked at without a round trip.
    pub fn is_here(&self) -> bool {
        self.place.target.is_none()
    }

    /// Whether a file or directory of this path is followed.
    pub fn wants(&self, path: &[u8]) -> bool {
        self.names.wanted(path)
    }

    /// The next events. Cancel safe; never without events.
    pub async fn happened(&self) -> Result<Vec<Happened>, Fault> {
        match &self.watch {
            Some(watch) => watch.next().await.map_err(|error| self.broken(error)),
            None => pending().await,
        }
    }

    /// Events that are there already.
    pub fn happened_already(&self) -> Result<Vec<Happened>, Fault> {
        self.watch.as_ref().map_or(Ok(Vec::new()), |watch| watch.take().map_err(|error| self.broken(error)))
    }

    fn broken(&self, error: std::io::Error) -> Fault {
        Fault::from_io(error, "read file events").on_path(&self.place.path).side(Side::Us)
    }

    /// A file on this host as it is now; `None`: it is gone.
    ///
    /// # Errors
    /// Nobody can say.
    pub fn look(&self, path: &[u8]) -> Result<Option<Version>, Fault> {
        scan::look(&self.root(), path)
    }

    /// Begins a scan of what is below these directories, relative to the root.
    pub fn scan(&mut self, starts: Vec<Vec<u8>>) -> Scan {
        let began = Instant::now();
        let names = self.names.clone();
        if self.is_here() {
            let (root, from) = (self.root(), starts.clone());
            let watched = self.watch.as_ref().map(|watch| watch.directories().clone());
            let scan = spawn_blocking(move || scan::scan_local(&root, from, &names, watched.as_ref()));
            return Box::pin(async move {
                let failed = |_| Err(Fault::new(FaultCode::Internal, "scan").side(Side::Us));
                Scanned { sight: scan.await.unwrap_or_else(failed), starts, began, session: None }
            });
        }
        let (place, session, local) = (self.place.clone(), self.session.clone(), self.local.clone());
        let mut end = self.end.take();
        Box::pin(async move {
            let used = end.is_some();
            let mut sight = scan_server(&mut end, &place, &starts, &names, &session, &local).await;
            if used && sight.as_ref().is_err_and(ends_session) {
                // The server may only have closed a session that was idle.
                sight = scan_server(&mut end, &place, &starts, &names, &session, &local).await;
            }
            Scanned { sight, starts, began, session: end }
        })
    }

    /// Takes the session of a scan back.
    pub fn scanned(&mut self, scanned: &mut Scanned) {
        self.end = scanned.session.take();
    }

    fn root(&self) -> PathBuf {
        Path::new(OsStr::from_bytes(&self.place.path)).to_owned()
    }
}

async fn scan_server(
    end: &mut Option<End>,
    place: &Place,
    starts: &[Vec<u8>],
    names: &Names,
    session: &SessionOptions,
    local: &LocalOptions,
) -> Result<Sight, Fault> {
    let mut open = match end.take() {
        Some(open) => open,
        None => End::open(place.target.as_ref(), session, local)
            .await
            .map_err(|fault| fault.side_if_unknown(Side::Source))?,
    };
    let sight = scan::scan_remote(&mut open, &place.path, starts.to_vec(), names).await;
    if !sight.as_ref().is_err_and(ends_session) {
        *end = Some(open);
    }
    sight
}
