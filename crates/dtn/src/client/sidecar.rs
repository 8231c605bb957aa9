//! What lies beside files at servers of other kinds: what is proven of unfinished ones, and what other runs have left.
//!
//! `...-kept` has the form of [`journal`] and is written over a session of its own, at most once a second. Whoever goes on,
//! from any host, finds in it the source's digests of what was proven, so that the source need not read that again. The
//! destination is asked again for all of it: nobody knows what a server of another kind has made durable.
//!
//! The same session takes over what a run that is no more has left ([`leftovers`]), and tells other runs that this one is at
//! work ([`temporary`]).
//!
//! [`temporary`]: super::temporary

mod keeper;
mod leftovers;
pub(in crate::client) mod sessions;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use whimbrel_engine::events::Event;
use whimbrel_engine::journal::{self, Header};
use whimbrel_engine::plan::ItemId;
use whimbrel_engine::transfer::Job;
use whimbrel_proto::op::Leaf;

use self::keeper::Keeper;
use super::checksum::SharedChecksum;
use super::dtns::Dtns;
use super::hosts::Hosts;
use super::run::RunId;
use super::target::{SessionOptions, Target};
use super::temporary::Version;
use crate::journaled::to_wire;

/// How long anything may take: a server that cannot be reached for data must not hold up a copy.
const LIMIT: Duration = Duration::from_secs(10);

/// What the user is to be told.
pub type News = Rc<RefCell<Vec<Event>>>;

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

/// Where an unfinished copy is, and what is kept of it.
#[derive(Debug, Clone)]
pub struct Place {
    /// The destination's server.
    pub target: Target,
    /// The unfinished copy's name.
    pub name: Vec<u8>,
    /// What its leaves are about.
    pub header: Header,
}

/// What a file in chunks could go on with.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The name that its unfinished copy has in this run.
    pub name: Vec<u8>,
    /// Its final name.
    pub destination: Vec<u8>,
    /// The version of its source.
    pub version: Version,
    /// This run.
    pub run: RunId,
}

/// What is there under the name of an unfinished copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Its bytes.
    pub size: u64,
    /// Which file it is, where its server tells.
    pub unique: Option<String>,
    /// What is kept beside it; `None`: nothing. What cannot be read is empty.
    pub kept: Option<Vec<u8>>,
}

enum Request {
    Seek { item: ItemId, target: Target, wanted: Wanted, answer: oneshot::Sender<Option<Found>> },
    Opened { item: ItemId, target: Target, name: Vec<u8> },
    Begin { item: ItemId, place: Place, proven: Vec<Leaf>, exists: bool },
    Proven { item: ItemId, leaves: Vec<Leaf> },
    End { item: ItemId, remove: bool },
    GiveUp { item: ItemId },
    Discard { target: Target, name: Vec<u8> },
    Tidy { target: Target, directory: Vec<u8> },
}

/// What a copy keeps and looks for beside its files; no session is opened before there is something to do.
#[derive(Default)]
pub struct Sidecars {
    keeper: RefCell<Option<(UnboundedSender<Request>, JoinHandle<()>)>>,
}

/// How sessions for sidecars are opened.
#[derive(Clone)]
pub struct Dialling {
    /// What is known of the DTNs.
    pub dtns: Rc<Dtns>,
    /// Whether the destination's hosts are those they were.
    pub hosts: Rc<Hosts>,
    /// As the copy's own sessions.
    pub session: SessionOptions,
    /// Where news go.
    pub news: News,
}

impl Sidecars {
    /// Finds what a file in chunks can go on with, and from then on tells others that this run is at work on it.
    pub fn seek(
        &self,
        dialling: &Dialling,
        item: ItemId,
        target: Target,
        wanted: Wanted,
    ) -> oneshot::Receiver<Option<Found>> {
        let (answer, told) = oneshot::channel();
        self.ask(dialling, Request::Seek { item, target, wanted, answer });
        told
    }

    /// A file in chunks begins where nobody can have left anything: others are told that this run is at work on it.
    pub fn opened(&self, dialling: &Dialling, item: ItemId, target: Target, name: Vec<u8>) {
        self.ask(dialling, Request::Opened { item, target, name });
    }

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

    /// The source of a file has become another one: nobody goes on with what was stored, which is removed.
    pub fn give_up(&self, item: ItemId) {
        self.tell(Request::GiveUp { item });
    }

    /// Removes what is left of a file that moved as a whole.
    pub fn discard(&self, dialling: &Dialling, target: Target, name: Vec<u8>) {
        self.ask(dialling, Request::Discard { target, name });
    }

    /// Removes, when nothing else is to be done, what runs that are no more have left of whole files in a directory.
    pub fn tidy(&self, dialling: &Dialling, target: Target, directory: Vec<u8>) {
        self.ask(dialling, Request::Tidy { target, directory });
    }

    /// Whether it has been at work: then a session is open.
    pub fn is_at_work(&self) -> bool {
        self.keeper.borrow().is_some()
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
            (sender, tokio::task::spawn_local(Keeper::new(dialling.clone()).run(requests)))
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

#[cfg(test)]
mod tests {
    use whimbrel_transport::digest::Algorithm;

    use super::*;
    use crate::journaled::records;

    const LEAF: u64 = 4096;

    fn a_header() -> Header {
        Header { size: 3 * LEAF + 5, modified: Some((7, 8)), leaf: LEAF, algorithm: "MD5".into() }
    }

    fn a_leaf(index: u64) -> Leaf {
        let digest = Algorithm::Md5.digest(&index.to_le_bytes()).to_string();
        Leaf { range: index * LEAF..((index + 1) * LEAF).min(3 * LEAF + 5), digest }
    }

    fn written(leaves: &[Leaf]) -> Vec<u8> {
        [journal::encode_header(&a_header()).unwrap(), records(&a_header(), leaves, journal::Writer::ONLY).unwrap()]
            .concat()
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
}
