//! One end of a transfer: a server, or this host.

mod plain;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use whimbrel_engine::listing::{Object, ObjectKind};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{ListForm, ListSpec, Notice, Op, OpId, Outcome};
use whimbrel_transport::digest::Algorithm;

use super::data;
use super::dtns::Dtns;
use super::facts::{self, Owner};
use super::grid::Credential;
use super::local::{Local, LocalData, LocalOptions};
use super::remote::{EndEvent, Remote};
use super::target::{SessionOptions, Target};
use crate::processors;

/// Objects handed over at once by a listing.
pub const BATCH: usize = 512;

/// Characters of a line of a listing that are shown.
const LONGEST_SHOWN: usize = 200;

/// Checksums a local mover computes.
const LOCAL_CHECKSUMS: &[&str] = &["XXH3-128", "CRC32C", "BLAKE3", "MD5", "SHA1", "SHA256", "SHA512", "ADLER32"];

/// One end. Operations are answered in order.
pub enum End {
    /// A server.
    Remote(Box<Remote>),
    /// This host.
    Local(Local),
}

impl End {
    /// One end for questions and small commands: a session with `target`, or this host.
    pub async fn open(target: Option<&Target>, session: &SessionOptions, local: &LocalOptions) -> Result<Self, Fault> {
        match target {
            Some(target) => Ok(Self::Remote(Box::new(Dtns::default().dial(target, session, &[]).await?.0))),
            None => Ok(Self::Local(LocalData::start(local).await?.attach(None, None)?)),
        }
    }

    /// Hands over an operation without waiting.
    pub fn submit(&mut self, op: Op) -> Result<OpId, Fault> {
        match self {
            Self::Remote(remote) => remote.submit(op),
            Self::Local(local) => local.submit(op),
        }
    }

    /// The next event of any operation. Cancel safe. An error ends the end.
    pub async fn event(&mut self) -> Result<(OpId, EndEvent), Fault> {
        match self {
            Self::Remote(remote) => remote.event().await,
            Self::Local(local) => local.event().await,
        }
    }

    /// Like [`End::event`], with a server's reply time-out.
    pub async fn event_in_time(&mut self) -> Result<(OpId, EndEvent), Fault> {
        match self {
            Self::Remote(remote) => remote.event_in_time().await,
            Self::Local(local) => local.event().await,
        }
    }

    /// Submits an operation and waits for its end; its notices are dropped.
    pub async fn run(&mut self, op: Op) -> Result<Outcome, Fault> {
        match self {
            Self::Remote(remote) => remote.run(op).await,
            Self::Local(local) => local.run(op).await,
        }
    }

    /// The same for work of which a server may tell nothing before it is done, however much it is.
    pub async fn run_long(&mut self, op: Op) -> Result<Outcome, Fault> {
        match self {
            Self::Remote(remote) => remote.run_long(op).await,
            Self::Local(local) => local.run(op).await,
        }
    }

    /// Waits for the end of an operation; its notices are dropped, and events of others stay.
    pub async fn finish(&mut self, id: OpId) -> Result<Outcome, Fault> {
        match self {
            Self::Remote(remote) => remote.finish(id).await,
            Self::Local(local) => local.finish(id).await,
        }
    }

    /// Ends the session and waits, not longer than `limit`, until the server has, too: until then it may still do what it was
    /// told.
    pub async fn leave(&mut self, limit: std::time::Duration) {
        if let Self::Remote(remote) = self {
            remote.leave(limit).await;
        }
    }

    /// The server, if this is one.
    pub fn remote(&self) -> Option<&Remote> {
        match self {
            Self::Remote(remote) => Some(remote),
            Self::Local(_) => None,
        }
    }

    /// What it shows on data connections that prove who they are.
    pub fn credential(&self) -> Option<&Arc<Credential>> {
        match self {
            Self::Remote(remote) => remote.credential(),
            Self::Local(local) => local.credential(),
        }
    }

    /// Control addresses (the server's, ours).
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.remote().map(Remote::addresses)
    }

    /// Checksum algorithms, upper case.
    pub fn checksums(&self) -> Vec<String> {
        match self {
            Self::Remote(remote) => remote.checksums(),
            Self::Local(_) => LOCAL_CHECKSUMS.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    /// Checksums that it computes of leaves.
    pub fn leaf_checksums(&self) -> Vec<String> {
        match self {
            Self::Remote(remote) => {
                let names = remote.features.params("LEAVES").unwrap_or_default();
                names.split(',').map(|name| name.trim().to_owned()).collect()
            }
            Self::Local(_) => vec![Algorithm::Blake3Tree.name().to_owned()],
        }
    }

    /// Whether it has a feature of our own servers; this host has them all.
    pub fn has(&self, feature: &str) -> bool {
        self.remote().is_none_or(|remote| remote.features.has(feature))
    }

    /// Processors that transfers may use there, as far as that is known.
    pub fn processors(&self) -> Option<f64> {
        self.remote().map_or_else(|| Some(processors::share()), Remote::processors)
    }

    /// Whether it takes no data connections, and only makes some.
    pub fn is_outbound(&self) -> bool {
        self.remote().is_some_and(Remote::is_outbound)
    }

    /// Whether it can encrypt data connections with a key from their nonce, which is told it over the control connection: never in clear.
    pub fn encrypts_data(&self) -> bool {
        self.remote().is_none_or(|remote| remote.proves_by_nonce(true))
    }

    /// Whether MODE E may be used.
    pub fn extended_mode(&self) -> bool {
        self.remote().is_none_or(|remote| !remote.lacks("PARALLEL"))
    }

    /// What is at `path`; with `links`, a link is described itself. `None`: nothing.
    pub async fn stat(&mut self, path: &[u8], links: bool) -> Result<Option<Object>, Fault> {
        let answer = self.run(Op::Facts { path: path.to_vec(), facts: None }).await;
        match described(answer, path, links) {
            Err(fault) if fault.code == FaultCode::NotSupported => self.stat_without_facts(path).await,
            result => result,
        }
    }

    /// Makes a directory unless it is there; whether it is new.
    ///
    /// # Errors
    /// It cannot be made, or is something else (`AlreadyExists`).
    pub async fn make_unless_there(&mut self, path: &[u8]) -> Result<bool, Fault> {
        let Err(fault) = self.run(Op::MakeDirectory(path.to_vec())).await else { return Ok(true) };
        if ends_session(&fault) {
            return Err(fault);
        }
        // Servers refuse existing directories, and parents one may not write to, with many codes.
        match self.stat(path, false).await? {
            Some(object) if object.kind == ObjectKind::Directory => Ok(false),
            Some(_) => Err(Fault::new(FaultCode::AlreadyExists, "make directory").on_path(path)),
            None => Err(fault),
        }
    }

    /// Lists a directory, a batch at a time; with `links`, links are described themselves.
    ///
    /// Over the control connection where the server can (MLSC), so that no firewall matters; else
    /// over a data connection (MLSD, or LIST for old servers).
    ///
    /// # Errors
    /// Also when a line tells of something that cannot be understood, after all entries that can.
    pub async fn list(
        &mut self,
        path: &[u8],
        links: bool,
        mut each: impl AsyncFnMut(Vec<(Object, Owner)>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let over_control = self.remote().is_none_or(|remote| !remote.lacks("MLSC"));
        if over_control {
            match self.list_inline(path, links, &mut each).await {
                Err(fault) if fault.code == FaultCode::NotSupported => {}
                result => return result,
            }
        }
        self.list_over_data(path, links, each).await
    }

    /// The same over a data connection. Nothing else may be in the air.
    pub async fn list_over_data(
        &mut self,
        path: &[u8],
        links: bool,
        mut each: impl AsyncFnMut(Vec<(Object, Owner)>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Self::Remote(remote) = self else {
            return Err(Fault::new(FaultCode::Internal, "list").on_path(path).side(Side::Us));
        };
        let told = match remote.lacks("MLST") {
            true => None,
            false => match data::fetch_listing(remote, spec(path, ListForm::Facts)).await {
                // Not every server that lacks it says so before.
                Err(fault) if fault.code == FaultCode::NotSupported => None,
                listing => Some(listing?),
            },
        };
        let read = match told {
            Some(listing) => entries(&listing, links),
            None => self.list_long(path).await?,
        };
        each(read.entries).await?;
        read.unclear.map_or(Ok(()), |line| Err(unclear(path, &line)))
    }

    async fn list_inline(
        &mut self,
        path: &[u8],
        links: bool,
        each: &mut impl AsyncFnMut(Vec<(Object, Owner)>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let id = self.submit(listing(path))?;
        let mut read = Entries::default();
        loop {
            match self.event_in_time().await? {
                (op, EndEvent::Notice(Notice::Lines(lines))) if op == id => {
                    read.extend(entries(&lines, links));
                    if read.entries.len() >= BATCH {
                        each(std::mem::take(&mut read.entries)).await?;
                    }
                }
                (op, EndEvent::Done(result)) if op == id => {
                    result?;
                    each(read.entries).await?;
                    return read.unclear.map_or(Ok(()), |line| Err(unclear(path, &line)));
                }
                _ => {}
            }
        }
    }
}

/// The operation that lists a directory over the control connection: its lines come as notices.
pub fn listing(path: &[u8]) -> Op {
    Op::Listing(spec(path, ListForm::Facts))
}

fn spec(path: &[u8], form: ListForm) -> ListSpec {
    ListSpec {
        path: path.to_vec(),
        written: Vec::new(),
        form,
        facts: None,
        flags: Vec::new(),
        continue_on_error: true,
        follow_links: false,
    }
}

/// What lines of a listing tell.
#[derive(Debug, Default)]
pub struct Entries {
    /// The entries of the directory.
    pub entries: Vec<(Object, Owner)>,
    /// The first line that tells of something that cannot be understood: the listing is not complete.
    pub unclear: Option<Vec<u8>>,
}

impl Entries {
    /// Adds what comes next.
    pub fn extend(&mut self, next: Self) {
        self.entries.extend(next.entries);
        self.unclear = self.unclear.take().or(next.unclear);
    }

    /// Takes a line that tells of an entry, or of the directory itself (`Some(None)`), or of nothing known.
    fn take(&mut self, line: &[u8], told: Option<Option<(Object, Owner)>>) {
        match told {
            Some(None) => {}
            Some(Some((object, _))) if is_dot(&object.path) => {}
            Some(Some((object, owner))) if is_name(&object.path) => self.entries.push((object, owner)),
            _ => {
                self.unclear.get_or_insert_with(|| line.to_vec());
            }
        }
    }
}

/// What whole lines of a machine listing tell; `links` as in [`facts::listed`].
pub fn entries(text: &[u8], links: bool) -> Entries {
    let mut read = Entries::default();
    lines(text).for_each(|line| read.take(line, facts::listed(line, links).ok()));
    read
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
}

/// Whether nothing more can be asked on a session that lists and asks.
pub fn ends_session(fault: &Fault) -> bool {
    use FaultCode as F;
    matches!(fault.code, F::ConnectionLost | F::TimedOut | F::ServerBusy | F::PeerMisbehaved)
}

/// The fault of a directory whose listing has a line that cannot be understood.
pub fn unclear(path: &[u8], line: &[u8]) -> Fault {
    let line = String::from_utf8_lossy(line.trim_ascii_end());
    let shown: String = line.chars().take(LONGEST_SHOWN).collect();
    Fault::new(FaultCode::ListingUnclear, "list").on_path(path).detail(format!("{shown:?}"))
}

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// A hostile server must not make us write outside the directory we write to.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !is_dot(name) && !name.contains(&b'/') && !name.contains(&0)
}

/// The object that the answer to `Facts` describes; its path is empty.
pub fn described(answer: Result<Outcome, Fault>, path: &[u8], links: bool) -> Result<Option<Object>, Fault> {
    match answer {
        Ok(Outcome::Line(line)) => facts::described(&line, links).map(Some).ok_or_else(|| {
            Fault::new(FaultCode::PeerMisbehaved, "describe").on_path(path).detail(String::from_utf8_lossy(&line))
        }),
        Ok(_) => Ok(None),
        Err(fault) if fault.code == FaultCode::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The address to connect to from here: some servers announce one that only they can reach.
pub fn reachable(announced: SocketAddr, server: IpAddr) -> SocketAddr {
    let ip = announced.ip();
    let useless = ip.is_unspecified() || (ip.is_loopback() && !server.to_canonical().is_loopback());
    if useless { SocketAddr::new(server, announced.port()) } else { announced }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_climb_out_of_the_directory_are_dropped() {
        for bad in [&b""[..], b".", b"..", b"../x", b"a/b", b"/etc", b"a\0"] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_name(b"..."));
    }

    #[test]
    fn lines_of_a_listing_that_tell_of_no_entry_make_it_unclear_and_empty_ones_and_dots_do_not() {
        let names = |read: &Entries| read.entries.iter().map(|(object, _)| object.path.clone()).collect::<Vec<_>>();
        let read =
            entries(b"Type=cdir; /d\r\nType=dir; ..\r\nType=file; a\r\n\r\n \r\nno-line\r\nType=file; b\r\n", false);
        assert_eq!(names(&read), [b"a", b"b"]);
        assert_eq!(read.unclear.as_deref(), Some(&b"no-line\r"[..]));
        let read = entries(b"Type=file; ../a\r\nType=file; b", false);
        assert_eq!((names(&read), read.unclear.is_some()), (vec![b"b".to_vec()], true));
        let fault = unclear(b"/d", &read.unclear.unwrap());
        assert!(fault.to_string().contains("Type=file; ../a\")"), "{fault}");
    }

    #[test]
    fn an_announced_loopback_address_is_replaced_unless_the_server_is_there() {
        let announced: SocketAddr = "127.0.0.1:5".parse().unwrap();
        assert_eq!(reachable(announced, "192.0.2.1".parse().unwrap()).to_string(), "192.0.2.1:5");
        assert_eq!(reachable(announced, "127.0.0.2".parse().unwrap()), announced);
    }
}
