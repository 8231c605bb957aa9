//! What a connection remembers between commands.

use std::ops::Range;
use std::time::Duration;

use super::answer::Answer;
use super::config::ServerConfig;
use super::secure::Security;
use crate::command::LayoutKind;
use crate::op::{DataParams, LeafSpec, Mode, Op};

/// State of one login; REIN makes a fresh one.
#[derive(Debug)]
pub(super) struct Session {
    /// Where the login stands.
    pub(super) phase: Phase,
    /// Failed logins so far.
    pub(super) failures: u32,
    /// What protects the connection.
    pub(super) security: Security,
    /// Working directory, absolute.
    pub(super) cwd: Vec<u8>,
    /// TYPE A is in force. It belongs to a transfer, not to its connection: everyday clients send TYPE after PASV.
    pub(super) ascii: bool,
    /// What the next PASV or PORT freezes.
    pub(super) params: DataParams,
    /// Stripe layout, and the block size to use when it is Blocked.
    pub(super) layout: LayoutKind,
    /// Stripe block size, bytes.
    pub(super) block_size: u64,
    /// The data handle.
    pub(super) data: DataHandle,
    /// PASV and its kin wait for the transfer command (OPTS PASV AllowDelayed).
    pub(super) allow_delayed: bool,
    /// EPSV ALL was given (RFC 2428 §4).
    pub(super) epsv_only: bool,
    /// Marker intervals.
    pub(super) markers: Markers,
    /// Digests in the final replies of transfers (SITE LEAVES).
    pub(super) leaves: Option<LeafSpec>,
    /// Leaves of what is stored are read back past the host's memory (SITE READBACK).
    pub(super) past_memory: bool,
    /// Final replies of transfers tell where the time went (SITE SPENT).
    pub(super) tells_spent: bool,
    /// Whole files and packs are durable before they are answered (SITE DURABLE).
    pub(super) durable: bool,
    /// Settings for the next transfer only.
    pub(super) once: Once,
    /// Facts of machine listings; `None`: the default set.
    pub(super) facts: Option<Vec<String>>,
    /// OPTS MLSR.
    pub(super) recursion: Recursion,
    /// Source of a rename under way.
    pub(super) rename_from: Option<Vec<u8>>,
    /// Target of a symbolic link under way.
    pub(super) symlink_target: Option<Vec<u8>>,
    /// What the client calls its task (SITE TASKID).
    pub(super) label: Option<Vec<u8>>,
    /// The client doubles IAC in its arguments (RFC 854); GridFTP clients do not.
    pub(super) telnet: bool,
}

/// Where the login stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nobody.
    Fresh,
    /// USER was given, PASS is awaited.
    Named(Vec<u8>),
    /// Logged in.
    In(Account),
}

/// Who is logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    /// Local user name.
    pub(super) user: String,
    /// Home directory, absolute.
    pub(super) home: Vec<u8>,
}

/// What the next transfer uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DataHandle {
    /// Nothing: PASV or PORT is needed first.
    None,
    /// A delayed passive handle: this operation runs when the transfer command comes.
    Delayed(PassiveKind, Box<Op>),
    /// Listener or targets exist on the data side.
    Ready {
        /// Frozen mode.
        mode: Mode,
        /// Set when the first transfer in MODE E opens; later ones reuse the connections and must agree.
        direction: Option<Direction>,
    },
}

/// Which command asked for a passive handle; decides the shape of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassiveKind {
    /// PASV.
    Plain,
    /// EPSV.
    Extended,
    /// SPAS, `true` with an address family: the long address form.
    Striped(bool),
    /// `pasv` of GET and PUT (GFD.47 §3.2).
    V2,
}

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the client or its other server.
    Sending,
    /// From there.
    Receiving,
}

/// Marker intervals; `None`: no markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Markers {
    /// 112 while receiving (TREV PERF).
    pub(super) performance: Option<Duration>,
    /// 111 while receiving (TREV RESTART).
    pub(super) ranges: Option<Duration>,
    /// 112 while sending (OPTS RETR Markers).
    pub(super) sending: Option<Duration>,
    /// 113 while hashing (OPTS CKSM Markers).
    pub(super) hashing: Option<Duration>,
}

/// Settings that the next transfer consumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Once {
    /// Ranges the receiver has (REST).
    pub(super) restart: Option<Vec<Range<u64>>>,
    /// Announced size, bytes (ALLO).
    pub(super) size: Option<u64>,
    /// Algorithm and digest (SCKS, SITE STORATTR).
    pub(super) checksum: Option<(String, String)>,
    /// Modification time (SITE STORATTR).
    pub(super) modified: Option<(i64, u32)>,
    /// Permission bits (SITE STORATTR).
    pub(super) mode: Option<u32>,
    /// A restart says what is there, and nothing else (SITE STORATTR).
    pub(super) strict: bool,
}

impl Once {
    /// Whether anything was set that only a whole file can have.
    pub(super) fn is_about_a_whole_file(&self) -> bool {
        self.restart.is_some() || self.checksum.is_some() || self.modified.is_some() || self.mode.is_some()
    }
}

/// How MLSR walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recursion {
    pub(super) continue_on_error: bool,
    pub(super) follow_links: bool,
}

impl Session {
    /// A connection before its login.
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            phase: Phase::Fresh,
            failures: 0,
            security: Security::new(config),
            cwd: b"/".to_vec(),
            // TYPE A, MODE S: RFC 959 §5.1.
            ascii: true,
            params: DataParams::default(),
            layout: LayoutKind::Blocked,
            block_size: 1 << 20,
            data: DataHandle::None,
            allow_delayed: false,
            epsv_only: false,
            markers: Markers {
                performance: Some(config.performance_interval),
                ranges: Some(config.range_interval),
                sending: None,
                hashing: None,
            },
            leaves: None,
            past_memory: false,
            tells_spent: false,
            durable: false,
            label: None,
            once: Once::default(),
            facts: None,
            recursion: Recursion { continue_on_error: true, follow_links: false },
            rename_from: None,
            symlink_target: None,
            telnet: true,
        }
    }

    /// True after a successful login.
    pub(super) fn is_logged_in(&self) -> bool {
        self.account().is_some()
    }

    /// True if no login was begun.
    pub(super) fn is_untouched(&self) -> bool {
        self.phase == Phase::Fresh && !self.security.awaits_token()
    }

    /// Who is logged in.
    pub(super) fn account(&self) -> Option<&Account> {
        match &self.phase {
            Phase::In(account) => Some(account),
            Phase::Fresh | Phase::Named(_) => None,
        }
    }

    /// What a new data handle freezes; a nonce is good for one handle, so that a client can go on without it. The reply in its place if
    /// connections cannot be protected as they must be.
    pub(super) fn params_for_handle(&mut self, config: &ServerConfig) -> Result<DataParams, Answer> {
        let (nonce, relay) = (self.params.nonce.take(), self.params.relay.take());
        let shield = self.security.shield(config, nonce.is_some())?;
        Ok(DataParams { nonce, shield, relay, ..self.params.clone() })
    }

    /// True if a transfer has opened over the MODE E handle in force and none has failed since: the next one reuses its connections.
    pub(super) fn handle_is_in_use(&self) -> bool {
        matches!(self.data, DataHandle::Ready { mode: Mode::Extended, direction: Some(_) })
    }

    /// Digests that the next transfer tells: none in TYPE A, whose bytes are not those of the file.
    pub(super) fn leaves_of_transfer(&self) -> Option<LeafSpec> {
        self.leaves.clone().filter(|_| !self.ascii)
    }

    /// Mode that the next transfer will have, as frozen in its handle.
    pub(super) fn handle_mode(&self) -> Mode {
        match &self.data {
            DataHandle::Ready { mode, .. } => *mode,
            DataHandle::Delayed(_, op) => match &**op {
                Op::Passive { params, .. } => params.mode,
                _ => self.params.mode,
            },
            DataHandle::None => self.params.mode,
        }
    }

    /// The absolute form of a path as a client gives it: `~` is the home directory, the rest counts from the working
    /// directory. `..` stays: the data side resolves and confines.
    pub(super) fn resolve(&self, path: &[u8]) -> Vec<u8> {
        let home = self.account().map_or(b"/".as_slice(), |account| &account.home);
        match path {
            [] => self.cwd.clone(),
            [b'/', ..] => path.to_vec(),
            [b'~'] => home.to_vec(),
            [b'~', b'/', rest @ ..] => join(home, rest),
            _ => join(&self.cwd, path),
        }
    }

    /// As [`Self::resolve`]; the working directory if no path is given.
    pub(super) fn resolve_or_cwd(&self, path: Option<&[u8]>) -> Vec<u8> {
        self.resolve(path.unwrap_or_default())
    }
}

fn join(base: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut path = base.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(rest);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_count_from_the_working_directory_or_home() {
        let mut session = Session::new(&ServerConfig::default());
        assert_eq!(session.resolve(b"a b"), b"/a b");
        session.phase = Phase::In(Account { user: "u".into(), home: b"/home/u".to_vec() });
        session.cwd = b"/data".to_vec();
        for (given, absolute) in [
            (&b"x/../y"[..], &b"/data/x/../y"[..]),
            (b"/x", b"/x"),
            (b"~", b"/home/u"),
            (b"~/z", b"/home/u/z"),
            (b"~z", b"/data/~z"),
            (b"", b"/data"),
            (b"\xff", b"/data/\xff"),
        ] {
            assert_eq!(session.resolve(given), absolute);
        }
    }
}
