//! Makes the directories that copies go into, and asks whether what they got is still there.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Instant;

use whimbrel_engine::follow::PATIENCE;
use whimbrel_engine::listing::{ObjectKind, join};
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::client::end::{End, ends_session};
use crate::client::hosts::Hosts;
use crate::client::local::LocalOptions;
use crate::client::options::Place;
use crate::client::target::{SessionOptions, Target};

/// The destination; its directories are made once.
pub struct Destination {
    place: Place,
    session: SessionOptions,
    local: LocalOptions,
    end: Option<End>,
    made: HashSet<Vec<u8>>,
    hosts: Option<Rc<Hosts>>,
    /// Since when whatever is asked of it fails for a reason that may pass.
    failing: Option<Instant>,
}

impl Destination {
    /// Nothing is made or opened yet. `hosts`: what the copy knows of its hosts; `None`: nobody asks what they may have lost.
    pub fn new(place: Place, session: SessionOptions, local: LocalOptions, hosts: Option<Rc<Hosts>>) -> Self {
        Self { place, session, local, end: None, made: HashSet::new(), hosts, failing: None }
    }

    /// Where the copy of a file goes.
    pub fn of(&self, path: &[u8]) -> Place {
        self.place.with_path(join(&self.place.path, path))
    }

    /// Its servers, where there are several.
    pub fn servers(&self) -> Option<String> {
        self.place.target.as_ref().filter(|target| !target.others.is_empty()).map(Target::to_string)
    }

    /// Makes the destination itself with its parents, unless it is there.
    ///
    /// # Errors
    /// It cannot be reached, or made, or is a file.
    pub async fn prepare(&mut self) -> Result<(), Fault> {
        let path = self.place.path.clone();
        let existing = self.end().await?.stat(&path, false).await.map_err(blame)?;
        match existing {
            Some(object) if object.kind == ObjectKind::Directory => return Ok(()),
            Some(_) => return Err(blame(Fault::new(FaultCode::NotADirectory, "copy into").on_path(&path))),
            None => {}
        }
        let inner = (1..path.len()).filter(|&at| path[at] == b'/' && path[at - 1] != b'/');
        let ends: Vec<usize> = inner.chain((!path.ends_with(b"/")).then_some(path.len())).collect();
        for at in ends {
            self.make(&path[..at]).await?;
        }
        Ok(())
    }

    /// Makes the directories that a file of this relative path lies in.
    ///
    /// # Errors
    /// One cannot be made.
    pub async fn make_parents(&mut self, path: &[u8]) -> Result<(), Fault> {
        for at in (0..path.len()).filter(|&at| path[at] == b'/') {
            let parent = &path[..at];
            if !self.made.contains(parent) {
                let made = self.make(&join(&self.place.path, parent)).await;
                self.heard(made)?;
                self.made.insert(parent.to_vec());
            }
        }
        Ok(())
    }

    /// What hosts may have lost because they were started anew: the server of the last one, and the failure to tell. Each is asked now by way of
    /// which something may have been stored.
    ///
    /// # Errors
    /// One cannot be asked.
    pub async fn loss(&mut self) -> Result<Option<(String, Fault)>, Fault> {
        let hosts = self.hosts.clone().filter(|_| self.place.target.is_some());
        let Some(hosts) = hosts else { return Ok(None) };
        let met = self.meet_again(&hosts).await;
        self.heard(met)?;
        Ok(hosts.take_loss())
    }

    async fn meet_again(&mut self, hosts: &Hosts) -> Result<(), Fault> {
        // A session from before the start answers no more, and a new one tells of it.
        let path = self.place.path.clone();
        self.make(&path).await?;
        let Some(target) = &self.place.target else { return Ok(()) };
        let asked = self.end.as_ref().and_then(End::remote).map(|remote| remote.target.to_string());
        for server in target.addresses().map(|address| target.at(address)) {
            let name = server.to_string();
            if asked.as_ref() != Some(&name) && hosts.has_met(&name) {
                drop(self.open(Some(&server)).await?);
            }
        }
        Ok(())
    }

    /// Whether what failed just now may pass, and such failures have not gone on for too long.
    pub fn may_recover(&self, fault: &Fault) -> bool {
        fault.is_temporary() && self.failing.is_none_or(|since| since.elapsed() <= PATIENCE)
    }

    fn heard<T>(&mut self, answer: Result<T, Fault>) -> Result<T, Fault> {
        let fails = answer.as_ref().is_err_and(Fault::is_temporary);
        self.failing = fails.then(|| self.failing.unwrap_or_else(Instant::now));
        answer
    }

    /// Makes a directory unless it is there; a session that was idle for too long is opened again once.
    async fn make(&mut self, path: &[u8]) -> Result<(), Fault> {
        let fresh = self.end.is_none();
        let mut result = self.end().await?.make_unless_there(path).await.map(drop);
        if result.as_ref().is_err_and(ends_session) && !fresh {
            self.end = None;
            result = self.end().await?.make_unless_there(path).await.map(drop);
        }
        if result.as_ref().is_err_and(ends_session) {
            self.end = None;
        }
        result.map_err(blame)
    }

    async fn end(&mut self) -> Result<&mut End, Fault> {
        if self.end.is_none() {
            self.end = Some(self.open(self.place.target.as_ref()).await?);
        }
        Ok(self.end.as_mut().expect("it was opened above"))
    }

    async fn open(&self, target: Option<&Target>) -> Result<End, Fault> {
        let end = End::open(target, &self.session, &self.local).await.map_err(blame)?;
        if let (Some(hosts), Some(remote)) = (&self.hosts, end.remote()) {
            hosts.saw(remote);
        }
        Ok(end)
    }
}

fn blame(fault: Fault) -> Fault {
    fault.side_if_unknown(Side::Destination)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::stub::Stub;
    use super::*;
    use crate::client::remote::Remote;

    fn destination(stub: &Stub) -> Destination {
        let place = Place { target: Some(stub.target.clone()), path: b"/to".to_vec() };
        Destination::new(place, SessionOptions::default(), LocalOptions::default(), None)
    }

    #[tokio::test]
    async fn a_destination_that_fails_is_waited_for_from_its_first_failure_on_and_not_for_ever() {
        let stub = Stub::start().await;
        let mut destination = destination(&stub);
        stub.set_busy(true);
        let fault = destination.make_parents(b"d/f").await.unwrap_err();
        assert!(destination.may_recover(&fault), "{fault}");
        destination.failing = Instant::now().checked_sub(PATIENCE + Duration::from_secs(1));
        let fault = destination.make_parents(b"d/f").await.unwrap_err();
        assert!(!destination.may_recover(&fault), "{fault}");
        stub.set_busy(false);
        destination.make_parents(b"d/f").await.unwrap();
        assert!(destination.may_recover(&fault), "the next failure is another's first");
        let refused = Fault::new(FaultCode::PermissionDenied, "make directory");
        assert!(!destination.may_recover(&refused));
    }

    #[tokio::test]
    async fn what_the_host_of_any_server_that_was_met_may_have_lost_is_told_once_each_has_answered() {
        let [first, second, stranger] = [Stub::start().await, Stub::start().await, Stub::start().await];
        let hosts = Rc::new(Hosts::default());
        for met in [&first, &second] {
            let session = Remote::dial(&met.target, &SessionOptions::default(), &[]).await.unwrap();
            hosts.met(&session.0);
        }
        hosts.exposed();
        stranger.set_busy(true);
        let others = [&second, &stranger].map(|stub| stub.target.address()).to_vec();
        let place = Place { target: Some(Target { others, ..first.target.clone() }), path: b"/to".to_vec() };
        let session = SessionOptions::default();
        let mut destination = Destination::new(place, session, LocalOptions::default(), Some(hosts));
        assert!(destination.loss().await.unwrap().is_none());
        second.restart();
        second.set_busy(true);
        let fault = destination.loss().await.unwrap_err();
        assert!(destination.may_recover(&fault), "{fault}");
        second.set_busy(false);
        let (server, fault) = destination.loss().await.unwrap().unwrap();
        assert_eq!((server, fault.code), (second.target.to_string(), FaultCode::HostRestarted));
    }
}
