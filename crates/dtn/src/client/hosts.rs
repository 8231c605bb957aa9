//! The destination's hosts while a copy runs: one that is started anew has lost what it had not written to its disks.
//!
//! Parts of large files are on the disk before they count as proven; whole small files need not be. A server says which start
//! of its host it belongs to (`SYNC` in FEAT), so that a run which outlives its destination does not end as if nothing had happened.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use whimbrel_engine::{Fault, FaultCode, Side};

use super::remote::Remote;

/// What a run knows of the destination's hosts.
#[derive(Debug, Default)]
pub struct Hosts {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The start that each host told, by the name of its server and what it calls itself: several may answer at one address.
    starts: HashMap<(String, String), String>,
    /// The servers by way of which something may have been stored.
    met: HashSet<String>,
    /// Files that are done, and that a crash would not leave.
    exposed: u64,
    /// The last server whose host was started anew, and the files that were exposed by then, while nobody was told.
    untold: Option<(String, u64)>,
    restarts: u64,
}

impl Hosts {
    /// A session with a server of the destination is open.
    pub fn met(&self, remote: &Remote) {
        self.state.borrow_mut().met.insert(remote.target.to_string());
        self.saw(remote);
    }

    /// The same of a session that stores nothing.
    pub fn saw(&self, remote: &Remote) {
        if let Some((host, start)) = remote.features.params("SYNC").and_then(|told| told.split_once('-')) {
            self.saw_at(&remote.target.to_string(), host, start);
        }
    }

    /// The same by what it is called and what it says.
    pub(crate) fn saw_at(&self, server: &str, host: &str, start: &str) {
        let state = &mut *self.state.borrow_mut();
        let before = state.starts.insert((server.to_owned(), host.to_owned()), start.to_owned());
        if before.is_some_and(|before| before != start) {
            state.restarts += 1;
            let earlier = state.untold.take().map_or(0, |(_, files)| files);
            let files = std::mem::take(&mut state.exposed) + earlier;
            state.untold = (files > 0).then(|| (server.to_owned(), files));
        }
    }

    /// Whether something may have been stored by way of this server.
    pub fn has_met(&self, server: &str) -> bool {
        self.state.borrow().met.contains(server)
    }

    /// A file is done that a crash would not leave.
    pub fn exposed(&self) {
        self.state.borrow_mut().exposed += 1;
    }

    /// How often a host was started anew since the run began, as far as its sessions have seen it.
    pub fn restarts(&self) -> u64 {
        self.state.borrow().restarts
    }

    /// The failure of a server that the user is to be told, once for each start: files that are done may be lost or empty.
    pub fn take_loss(&self) -> Option<(String, Fault)> {
        let (server, files) = self.state.borrow_mut().untold.take()?;
        let detail = format!("up to {files} files that were copied before are lost, empty or cut short");
        let fault = Fault::new(FaultCode::HostRestarted, "keep what was copied").subject(&server).detail(detail);
        Some((server, fault.side(Side::Destination)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_was_started_anew_is_told_once_with_what_it_may_have_lost() {
        let hosts = Hosts::default();
        for (host, start) in [("a", "1"), ("b", "2"), ("a", "1")] {
            hosts.saw_at("one address", host, start);
        }
        hosts.exposed();
        hosts.exposed();
        assert!(hosts.take_loss().is_none() && hosts.restarts() == 0);
        hosts.saw_at("one address", "b", "3");
        let (server, fault) = hosts.take_loss().unwrap();
        assert_eq!((&server[..], fault.code, hosts.restarts()), ("one address", FaultCode::HostRestarted, 1));
        assert!(fault.to_string().contains("up to 2 files"), "{fault}");
        hosts.saw_at("one address", "b", "3");
        assert!(hosts.take_loss().is_none(), "once");
    }

    #[test]
    fn nothing_is_lost_where_nothing_was_done_before() {
        let hosts = Hosts::default();
        hosts.saw_at("a", "h", "1");
        hosts.saw_at("a", "h", "2");
        hosts.exposed();
        assert!(hosts.take_loss().is_none() && hosts.restarts() == 1);
    }
}
