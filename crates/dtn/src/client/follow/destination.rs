//! Makes the directories that copies go into, and asks whether what they got is still there.

use std::collections::HashSet;
use std::rc::Rc;

use whimbrel_engine::listing::{ObjectKind, join};
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::client::end::{End, ends_session};
use crate::client::hosts::Hosts;
use crate::client::local::LocalOptions;
use crate::client::options::Place;
use crate::client::target::SessionOptions;

/// The destination; its directories are made once.
pub struct Destination {
    place: Place,
    session: SessionOptions,
    local: LocalOptions,
    end: Option<End>,
    made: HashSet<Vec<u8>>,
    hosts: Option<Rc<Hosts>>,
}

impl Destination {
    /// Nothing is made or opened yet. `hosts`: what the copy knows of its hosts; `None`: nobody asks what they may have lost.
    pub fn new(place: Place, session: SessionOptions, local: LocalOptions, hosts: Option<Rc<Hosts>>) -> Self {
        Self { place, session, local, end: None, made: HashSet::new(), hosts }
    }

    /// Where the copy of a file goes.
    pub fn of(&self, path: &[u8]) -> Place {
        self.place.with_path(join(&self.place.path, path))
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
                self.make(&join(&self.place.path, parent)).await?;
                self.made.insert(parent.to_vec());
            }
        }
        Ok(())
    }

    /// What the host may have lost because it was started anew, asked of it now: its server, and the failure to tell.
    ///
    /// # Errors
    /// It cannot be asked.
    pub async fn loss(&mut self) -> Result<Option<(String, Fault)>, Fault> {
        let hosts = self.hosts.clone().filter(|_| self.place.target.is_some());
        let Some(hosts) = hosts else { return Ok(None) };
        // A session from before the start answers no more, and a new one tells of it.
        let path = self.place.path.clone();
        self.make(&path).await?;
        Ok(hosts.take_loss())
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
            let opened = End::open(self.place.target.as_ref(), &self.session, &self.local).await.map_err(blame)?;
            if let (Some(hosts), Some(remote)) = (&self.hosts, opened.remote()) {
                hosts.saw(remote);
            }
            self.end = Some(opened);
        }
        Ok(self.end.as_mut().expect("it was opened above"))
    }
}

fn blame(fault: Fault) -> Fault {
    fault.side_if_unknown(Side::Destination)
}
