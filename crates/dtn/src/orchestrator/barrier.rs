//! Has the servers of a destination make durable what they were given: one `SITE SYNC` for each file system at each of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::timeout;
use whimbrel_engine::dispatch::Occurrence;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::Op;

use super::fate;
use super::report::Outbox;
use crate::client::dtns::Dtns;
use crate::client::end::{described, ends_session};
use crate::client::hosts::Hosts;
use crate::client::remote::Remote;
use crate::client::target::{SessionOptions, Target};

/// How long a storage may take to write out all that it has in memory.
const WRITING_OUT: Duration = Duration::from_secs(300);
/// Directories asked about ahead of the replies.
const AHEAD: usize = 100;
/// Directories whose file system is remembered.
const REMEMBERED: usize = 100_000;
/// Servers of an endpoint with which sessions are opened early.
const EARLY: usize = 4;
/// Directories of a file system by which it is named before it counts as one that nobody may have written out.
const NAMES: usize = 3;

/// What came of it.
#[derive(Debug)]
pub(super) enum Promise {
    /// Everything that was stored before is durable, as far as anybody can promise it.
    Kept,
    /// What was stored before may be lost.
    Lost(Fault),
    /// These servers make nothing durable at a client's wish.
    Never,
}

/// Sessions with all servers of a destination.
pub(super) struct Barrier<'a> {
    target: &'a Target,
    session: SessionOptions,
    hosts: Rc<Hosts>,
    outbox: Rc<Outbox>,
    dtns: Dtns,
    /// Taken out while something is asked: who is interrupted leaves none that is in the middle of something.
    open: HashMap<Target, Box<Remote>>,
    /// Which file system directories are on, as far as the server says.
    devices: HashMap<Vec<u8>, Option<String>>,
    /// That something cannot be made durable is told.
    told: bool,
}

impl<'a> Barrier<'a> {
    /// No session is open.
    pub(super) fn new(target: &'a Target, session: SessionOptions, hosts: Rc<Hosts>, outbox: Rc<Outbox>) -> Self {
        let (open, devices) = (HashMap::new(), HashMap::new());
        Self { target, session, hosts, outbox, dtns: Dtns::default(), open, devices, told: false }
    }

    /// Opens sessions early, as far as that works: only those that were open then say of data nodes that they were lost.
    pub(super) async fn open(&mut self) {
        for dtn in self.every_dtn().into_iter().take(EARLY) {
            if let Ok(remote) = self.take(&dtn).await {
                self.open.insert(dtn, remote);
            }
        }
    }

    /// Makes durable what was stored so far on the file systems that have these directories.
    ///
    /// # Errors
    /// Nobody can say now, for a reason that may pass.
    pub(super) async fn make_durable(&mut self, directories: &BTreeSet<Vec<u8>>) -> Result<Promise, Fault> {
        let mut groups = None;
        // By way of the others nothing was stored.
        let met = self.every_dtn().into_iter().filter(|dtn| self.hosts.has_met(&dtn.to_string()));
        for dtn in met.collect::<Vec<_>>() {
            let mut remote = self.take(&dtn).await?;
            if remote.features.has("SYNC") {
                let groups = match &mut groups {
                    Some(groups) => groups,
                    None => groups.insert(self.file_systems(&mut remote, directories).await?),
                };
                for group in groups.values() {
                    if let Some(fault) = self.write_out(&mut remote, group).await? {
                        return Ok(Promise::Lost(fault));
                    }
                }
            }
            self.open.insert(dtn, remote);
        }
        Ok(if groups.is_some() { Promise::Kept } else { Promise::Never })
    }

    fn every_dtn(&self) -> Vec<Target> {
        self.target.addresses().map(|address| self.target.at(address)).collect()
    }

    async fn take(&mut self, dtn: &Target) -> Result<Box<Remote>, Fault> {
        if let Some(remote) = self.open.remove(dtn) {
            return Ok(remote);
        }
        let (remote, _) = self.dtns.dial(dtn, &self.session, &[]).await?;
        self.hosts.saw(&remote);
        Ok(Box::new(remote))
    }

    /// The directories by the file systems that have them. What is there no more needs nothing.
    async fn file_systems(
        &mut self,
        remote: &mut Remote,
        directories: &BTreeSet<Vec<u8>>,
    ) -> Result<BTreeMap<String, Vec<Vec<u8>>>, Fault> {
        if self.devices.len() > REMEMBERED {
            self.devices.clear();
        }
        let new: Vec<_> = directories.iter().filter(|path| !self.devices.contains_key(*path)).collect();
        for some in new.chunks(AHEAD) {
            let facts = |path: &Vec<u8>| Op::Facts { path: path.clone(), facts: None };
            let asked: Vec<_> = some.iter().map(|path| remote.submit(facts(path))).collect::<Result<_, _>>()?;
            for (path, id) in some.iter().zip(asked) {
                let device = match described(remote.finish(id).await, path, false) {
                    Ok(Some(object)) => object.unique.and_then(|unique| Some(unique.rsplit_once('-')?.0.to_owned())),
                    Ok(None) => continue,
                    Err(fault) if may_pass(&fault) => return Err(fault),
                    Err(_) => None,
                };
                self.devices.insert((*path).clone(), device);
            }
        }
        let mut groups: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for path in directories {
            if let Some(device) = self.devices.get(path) {
                groups.entry(device.clone().unwrap_or_default()).or_default().push(path.clone());
            }
        }
        Ok(groups)
    }

    /// Why what was stored on a file system may be lost, if so.
    ///
    /// # Errors
    /// Nobody can say now.
    async fn write_out(&mut self, remote: &mut Remote, directories: &[Vec<u8>]) -> Result<Option<Fault>, Fault> {
        let mut refused = None;
        for directory in directories.iter().take(NAMES) {
            let late = || Fault::new(FaultCode::TimedOut, "make durable").side(Side::Destination);
            let asked = timeout(WRITING_OUT, remote.run(Op::Sync(directory.clone()))).await;
            match asked.unwrap_or_else(|_| Err(late())) {
                Ok(_) => return Ok(None),
                Err(fault) if may_pass(&fault) => return Err(fault),
                Err(fault) if fault.code == FaultCode::NotFound => {}
                Err(fault) if is_refusal(&fault) => refused = Some(fault),
                // It has not written out all of it, and says so once.
                Err(fault) => return Ok(Some(fault.side_if_unknown(Side::Destination))),
            }
        }
        if let Some(fault) = refused.filter(|_| !std::mem::replace(&mut self.told, true)) {
            let fault = fault.side_if_unknown(Side::Destination);
            let path = directories.first().cloned().unwrap_or_default();
            self.outbox.occurrence(Occurrence::Faulted { fault, path, retry_in: None });
        }
        Ok(None)
    }
}

/// Whether it is about the session, not about what is stored.
fn may_pass(fault: &Fault) -> bool {
    ends_session(fault)
        || fault.code == FaultCode::Stalled
        || fate::is_about_server(fault)
        || fate::is_about_login(fault)
}

/// Whether nobody may have it written out, or nobody can.
fn is_refusal(fault: &Fault) -> bool {
    use FaultCode as F;
    matches!(
        fault.code,
        F::NotSupported | F::PermissionDenied | F::PeerRefused | F::InvalidPath | F::NotADirectory | F::InvalidArgument
    )
}
