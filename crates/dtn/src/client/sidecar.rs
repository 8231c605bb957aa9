//! What is proven of unfinished files at servers that keep no journal: a small file beside each, `.NAME.whimbrel-kept`.
//!
//! It has the form of [`journal`] and is written over a session of its own, at most once a second. Whoever goes on, from any
//! host, finds in it the source's digests of what was proven, so that the source need not read that again. The destination
//! is asked again for all of it: nobody knows what a server of another kind has made durable.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use whimbrel_engine::journal::{self, Header};
use whimbrel_engine::plan::ItemId;
use whimbrel_engine::transfer::Job;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Leaf, Op};

use super::checksum::SharedChecksum;
use super::data;
use super::dtns::Dtns;
use super::remote::Remote;
use super::target::{SessionOptions, Target};
use crate::journaled::{records, to_wire};

/// Least time between two writes.
const EVERY: Duration = Duration::from_secs(1);

/// How long anything may take: a server that cannot be reached for data must not hold up a copy.
const LIMIT: Duration = Duration::from_secs(10);

/// Failures in a row after which a server is not bothered any more.
const PATIENCE: u32 = 3;

/// The name beside that of an unfinished copy.
pub fn name_of(temporary: &[u8]) -> Vec<u8> {
    [temporary, b"-kept"].concat()
}

/// Which version of which source, in which leaves.
pub fn header(job: &Job, checksum: &SharedChecksum, leaf: u64) -> Option<Header> {
    Some(Header {
        size: job.item.size?,
        modified: job.item.modified.map(|time| (time.secs, time.nanos)),
        leaf,
        algorithm: checksum.display().to_ascii_uppercase(),
    })
}

/// The leaves of `within` that a sidecar says were proven of the same version; none when it is about another.
pub fn claims(bytes: &[u8], wanted: &Header, within: Range<u64>) -> Vec<Leaf> {
    let trusted = journal::decode(bytes);
    if trusted.header.as_ref() != Some(wanted) {
        return Vec::new();
    }
    let inside = |leaf: &journal::Leaf| within.contains(&leaf.range.start) && leaf.range.end <= within.end;
    trusted.leaves.into_iter().filter(inside).map(to_wire).collect()
}

/// Where a sidecar is, and what it is about.
#[derive(Debug, Clone)]
pub struct Place {
    /// The destination's server.
    pub target: Target,
    /// The sidecar's name.
    pub name: Vec<u8>,
    /// What its leaves are about.
    pub header: Header,
}

enum Request {
    Begin { item: ItemId, place: Place, proven: Vec<Leaf>, exists: bool },
    Proven { item: ItemId, leaves: Vec<Leaf> },
    End { item: ItemId, remove: bool },
    Read { target: Target, name: Vec<u8>, answer: oneshot::Sender<Option<Vec<u8>>> },
}

/// The sidecars of a copy; nothing is begun before there is something to keep.
#[derive(Default)]
pub struct Sidecars {
    keeper: RefCell<Option<(UnboundedSender<Request>, JoinHandle<()>)>>,
}

/// How sessions for sidecars are opened.
#[derive(Clone)]
pub struct Dialling {
    /// What is known of the DTNs.
    pub dtns: Rc<Dtns>,
    /// As the copy's own sessions.
    pub session: SessionOptions,
}

impl Sidecars {
    /// Begins to keep what is proven of a file; `exists`: an earlier run has left a sidecar.
    pub fn begin(&self, dialling: &Dialling, item: ItemId, place: Place, proven: Vec<Leaf>, exists: bool) {
        self.ask(dialling, Request::Begin { item, place, proven, exists });
    }

    /// More leaves are proven.
    pub fn proven(&self, item: ItemId, leaves: &[Leaf]) {
        self.tell(Request::Proven { item, leaves: leaves.to_vec() });
    }

    /// A file has its name (`remove`), or has failed: then the sidecar stays for the next run.
    pub fn end(&self, item: ItemId, remove: bool) {
        self.tell(Request::End { item, remove });
    }

    /// What an earlier run left; `None`: nothing.
    pub fn read(&self, dialling: &Dialling, target: Target, name: Vec<u8>) -> oneshot::Receiver<Option<Vec<u8>>> {
        let (answer, told) = oneshot::channel();
        self.ask(dialling, Request::Read { target, name, answer });
        told
    }

    /// Writes what is left to write.
    pub async fn finish(&self) {
        let keeper = self.keeper.take();
        if let Some((requests, task)) = keeper {
            drop(requests);
            // What is not written by then would only have saved time.
            let _ = timeout(LIMIT, task).await;
        }
    }

    fn ask(&self, dialling: &Dialling, request: Request) {
        self.keeper.borrow_mut().get_or_insert_with(|| {
            let (sender, requests) = mpsc::unbounded_channel();
            let keeper = Keeper { dialling: dialling.clone(), files: HashMap::new(), sessions: HashMap::new() };
            (sender, tokio::task::spawn_local(keeper.run(requests)))
        });
        self.tell(request);
    }

    fn tell(&self, request: Request) {
        if let Some((requests, _)) = &*self.keeper.borrow() {
            // The keeper ends only when it is told so.
            let _ = requests.send(request);
        }
    }
}

/// One sidecar.
struct Kept {
    place: Place,
    /// All of it, from its first byte.
    bytes: Vec<u8>,
    /// How much of that is written.
    written: usize,
    /// Whether something of that name is there.
    exists: bool,
}

/// A server's session, and how often it failed in a row.
#[derive(Default)]
struct Session {
    remote: Option<Box<Remote>>,
    failures: u32,
}

struct Keeper {
    dialling: Dialling,
    files: HashMap<ItemId, Kept>,
    sessions: HashMap<Target, Session>,
}

impl Keeper {
    async fn run(mut self, mut requests: UnboundedReceiver<Request>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await; // the first one is at once
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.take(request).await,
                    None => return self.write_all().await,
                },
                _ = ticks.tick() => self.write_all().await,
            }
        }
    }

    async fn take(&mut self, request: Request) {
        match request {
            Request::Begin { item, place, proven, exists } => {
                let bytes = journal::encode_header(&place.header);
                let bytes =
                    bytes.zip(records(&place.header, &proven)).map(|(header, leaves)| [header, leaves].concat());
                if let Some(bytes) = bytes {
                    self.files.insert(item, Kept { place, bytes, written: 0, exists });
                }
            }
            Request::Proven { item, leaves } => {
                if let Some(kept) = self.files.get_mut(&item)
                    && let Some(records) = records(&kept.place.header, &leaves)
                {
                    kept.bytes.extend(records);
                }
            }
            Request::End { item, remove } => match self.files.remove(&item) {
                Some(kept) if remove && (kept.written > 0 || kept.exists) => self.remove(kept.place).await,
                Some(kept) if !remove => {
                    self.files.insert(item, kept);
                    self.write(item).await;
                    self.files.remove(&item);
                }
                _ => {}
            },
            Request::Read { target, name, answer } => {
                // One that cannot be read may be there.
                let mut bytes = Some(Vec::new());
                if let Some(remote) = self.session(&target).await {
                    match in_time(data::fetch_file(remote, &name)).await {
                        Ok(read) => bytes = Some(read),
                        Err(fault) if fault.code == FaultCode::NotFound => bytes = None,
                        Err(fault) => self.judge(&target, Err(fault)),
                    }
                }
                // The session that asked may be gone.
                let _ = answer.send(bytes);
            }
        }
    }

    async fn write_all(&mut self) {
        for item in self.files.keys().copied().collect::<Vec<_>>() {
            self.write(item).await;
        }
    }

    /// Writes what is new; all of it after a failure, since nobody knows what came of that.
    async fn write(&mut self, item: ItemId) {
        let Some(mut kept) = self.files.remove(&item) else { return };
        let (from, leaves) = (kept.written, kept.bytes.len());
        let header = journal::encode_header(&kept.place.header).map_or(0, |header| header.len());
        if from < leaves
            && leaves > header
            && let Some(remote) = self.session(&kept.place.target).await
        {
            let stored = in_time(data::store(remote, &kept.place.name, from as u64, &kept.bytes[from..])).await;
            kept.exists = true;
            kept.written = if stored.is_ok() { leaves } else { 0 };
            self.judge(&kept.place.target, stored);
        }
        self.files.insert(item, kept);
    }

    async fn remove(&mut self, place: Place) {
        for _ in 0..PATIENCE {
            let Some(remote) = self.session(&place.target).await else { continue };
            match in_time(remote.run(Op::Delete(place.name.clone()))).await {
                Err(fault) if fault.is_temporary() => self.judge(&place.target, Err(fault)),
                // That it is gone, or cannot be removed, is no fault of the session.
                _ => return,
            }
        }
    }

    /// The session with a server that was not given up.
    async fn session(&mut self, target: &Target) -> Option<&mut Remote> {
        let session = self.sessions.entry(target.clone()).or_default();
        if session.failures >= PATIENCE {
            return None;
        }
        if session.remote.is_none() {
            match in_time(self.dialling.dtns.dial(target, &self.dialling.session, &[])).await {
                Ok((remote, _)) => session.remote = Some(Box::new(remote)),
                Err(fault) => {
                    tracing::debug!(%fault, "no session for what is proven");
                    session.failures += 1;
                }
            }
        }
        session.remote.as_deref_mut()
    }

    fn judge(&mut self, target: &Target, result: Result<(), Fault>) {
        let Some(session) = self.sessions.get_mut(target) else { return };
        match result {
            Ok(()) => session.failures = 0,
            Err(fault) => {
                session.remote = None;
                session.failures += 1;
                tracing::info!(%fault, times = session.failures, "what is proven cannot be kept beside the unfinished file");
            }
        }
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let late = || Fault::new(FaultCode::TimedOut, "keep what is proven").side(Side::Network);
    timeout(LIMIT, work).await.unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use whimbrel_transport::digest::Algorithm;

    use super::*;

    const LEAF: u64 = 4096;

    fn a_header() -> Header {
        Header { size: 3 * LEAF + 5, modified: Some((7, 8)), leaf: LEAF, algorithm: "MD5".into() }
    }

    fn a_leaf(index: u64) -> Leaf {
        let digest = Algorithm::Md5.digest(&index.to_le_bytes()).to_string();
        Leaf { range: index * LEAF..((index + 1) * LEAF).min(3 * LEAF + 5), digest }
    }

    fn written(leaves: &[Leaf]) -> Vec<u8> {
        [journal::encode_header(&a_header()).unwrap(), records(&a_header(), leaves).unwrap()].concat()
    }

    #[test]
    fn what_was_kept_is_claimed_as_far_as_the_file_reaches() {
        let leaves = [a_leaf(0), a_leaf(2), a_leaf(3)];
        let bytes = written(&leaves);
        assert_eq!(claims(&bytes, &a_header(), 0..3 * LEAF + 5), leaves);
        assert_eq!(claims(&bytes, &a_header(), 0..3 * LEAF), leaves[..2]);
        assert_eq!(claims(&bytes, &a_header(), 0..LEAF - 1), []);
    }

    #[test]
    fn another_version_algorithm_or_cut_is_never_believed() {
        let bytes = written(&[a_leaf(0)]);
        let all = 0..u64::MAX;
        for other in [
            Header { size: 1, ..a_header() },
            Header { modified: None, ..a_header() },
            Header { modified: Some((7, 9)), ..a_header() },
            Header { leaf: 2 * LEAF, ..a_header() },
            Header { algorithm: "SHA256".into(), ..a_header() },
        ] {
            assert_eq!(claims(&bytes, &other, all.clone()), [], "{other:?}");
        }
        assert_eq!(claims(&bytes[1..], &a_header(), all.clone()), []);
        assert_eq!(claims(&[], &a_header(), all), []);
    }

    #[test]
    fn a_leaf_that_was_torn_or_changed_is_not_claimed() {
        let leaves = [a_leaf(0), a_leaf(1)];
        let bytes = written(&leaves);
        assert_eq!(claims(&bytes[..bytes.len() - 1], &a_header(), 0..u64::MAX), leaves[..1]);
        let mut flipped = bytes.clone();
        *flipped.last_mut().unwrap() ^= 1;
        assert_eq!(claims(&flipped, &a_header(), 0..u64::MAX), leaves[..1]);
    }

    #[test]
    fn the_name_stays_within_255_bytes() {
        let long = [b"/d/".as_slice(), &[b'x'; 240]].concat();
        assert_eq!(name_of(&super::super::chunk::temporary_name(&long)).len(), 3 + 255);
    }
}
