//! The sessions over which sidecars are kept: one for each server, given up after some failures.

use std::collections::HashMap;

use tokio::time::timeout;
use whimbrel_engine::listing::Object;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, Outcome};

use super::{Dialling, LIMIT};
use crate::client::end::{End, described, ends_session};
use crate::client::remote::Remote;
use crate::client::target::Target;

/// Failures in a row after which a server is not bothered any more.
const PATIENCE: u32 = 3;

/// A server's session, and how often it failed in a row.
#[derive(Default)]
struct Session {
    remote: Option<Box<Remote>>,
    failures: u32,
}

/// All of them.
pub struct Sessions {
    dialling: Dialling,
    known: HashMap<Target, Session>,
}

impl Sessions {
    /// None is open.
    pub fn new(dialling: Dialling) -> Self {
        Self { dialling, known: HashMap::new() }
    }

    /// Ends them all, whatever is under way.
    pub fn hang_up(&mut self) {
        self.known.values_mut().for_each(|session| session.remote = None);
    }

    /// The session with a server that was not given up.
    pub async fn with(&mut self, target: &Target) -> Option<&mut Remote> {
        let session = self.known.entry(target.clone()).or_default();
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

    /// Carries out something small. A session that breaks is opened again with the next.
    pub async fn run(&mut self, target: &Target, op: Op) -> Result<Outcome, Fault> {
        let Some(remote) = self.with(target).await else {
            return Err(Fault::new(FaultCode::ConnectionLost, "ask beside the copy").side(Side::Destination));
        };
        let result = in_time(remote.run(op)).await;
        if let Err(fault) = result.as_ref()
            && ends_session(fault)
        {
            self.judge(target, Err(fault.clone()));
        }
        result
    }

    /// Tries something several times, unless it is refused.
    pub async fn insist(&mut self, target: &Target, op: &Op) -> Result<Outcome, Fault> {
        let mut result = self.run(target, op.clone()).await;
        for _ in 1..PATIENCE {
            match &result {
                Err(fault) if fault.is_temporary() => result = self.run(target, op.clone()).await,
                _ => break,
            }
        }
        result
    }

    /// What is there; `None`: nothing.
    ///
    /// # Errors
    /// Nobody can say.
    pub async fn stat(&mut self, target: &Target, path: &[u8]) -> Result<Option<Object>, Fault> {
        let facts = Op::Facts { path: path.to_vec(), facts: None };
        let answer = self.run(target, facts).await;
        match described(answer, path, true) {
            Err(fault) if fault.code == FaultCode::NotSupported => {
                let size = self.run(target, Op::Size(path.to_vec())).await;
                Ok(match size {
                    Ok(Outcome::Size(size)) => Some(Object::file(Vec::new(), size)),
                    _ => None,
                })
            }
            result => result,
        }
    }

    /// What is in a directory, as far as `wanted` takes it; nothing if that cannot be told in time.
    pub async fn list<T>(&mut self, target: &Target, directory: &[u8], wanted: impl Fn(Object) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        if self.with(target).await.is_none() {
            return found;
        }
        let remote = self.known.get_mut(target).and_then(|session| session.remote.take());
        let Some(mut end) = remote.map(End::Remote) else { return found };
        let take = async |objects: Vec<(Object, _)>| {
            found.extend(objects.into_iter().filter_map(|(object, _)| wanted(object)));
            Ok(())
        };
        let listed = in_time(end.list(directory, true, take)).await;
        if let (Some(session), End::Remote(remote)) = (self.known.get_mut(target), end) {
            session.remote = Some(remote);
        }
        match listed {
            Err(fault) if ends_session(&fault) => {
                self.judge(target, Err(fault));
                found.clear();
            }
            Err(fault) => tracing::debug!(%fault, "what is beside the copies cannot be listed"),
            Ok(()) => {}
        }
        found
    }

    /// What came of something that took the session.
    pub fn judge(&mut self, target: &Target, result: Result<(), Fault>) {
        let Some(session) = self.known.get_mut(target) else { return };
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

/// Within [`LIMIT`].
pub async fn in_time<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let late = || Fault::new(FaultCode::TimedOut, "keep what is proven").side(Side::Network);
    timeout(LIMIT, work).await.unwrap_or_else(|_| Err(late()))
}
