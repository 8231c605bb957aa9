//! The data handle of one mover: where data connections come from, and those kept for reuse.
//!
//! Rules: a new PASV or PORT closes the previous handle with its connections; in MODE E a handle
//! serves any number of transfers and listings in one direction; in MODE S it serves one. A transfer
//! that fails before its data has passed ends the handle, for the next file must not get that data.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::command::Secret;
use whimbrel_proto::eblock::MOST_CONNECTIONS;
use whimbrel_proto::op::{DataParams, Family, Mode, Outcome, Shield, Spent};
use whimbrel_proto::relay::{HELLO_BYTES, Hello, Part};
use whimbrel_transport::mode_e::Connection;
use whimbrel_transport::tcp::{self, ChannelOptions, ConnectOptions, Dialling, Listener, PortRange};
use whimbrel_trust::{TrustFault, psk};

use super::credential::DataCredential;
use super::dial;
use super::failure::Problem;
use super::message::{DataPeers, Identity, Secrets, Stripe};
use super::node::Node;
use super::reach::{self, Reach};
use super::shield::Guard;
use super::stats::Way;

/// Most data connections that one handle calls, whatever is asked for.
const MOST_CALLED: usize = 512;

/// Ports below are never connected to (RFC 2577 §3: the bounce attack on well-known services).
const FIRST_FREE_PORT: u16 = 1024;

/// A mover's data side.
pub struct Session {
    node: Arc<Node>,
    control_peer: Option<IpAddr>,
    control_local: Option<IpAddr>,
    peers: DataPeers,
    /// Where logins of the same server wait for who shows a nonce, of the addresses that come next.
    listening: Vec<SocketAddr>,
    secrets: Secrets,
    /// What certificates prove, judged when it was first needed: what the client handed on, or brought since.
    credential: Option<Arc<DataCredential>>,
    handle: Option<Handle>,
    /// Connections of the handle as last counted in the process's statistics.
    counted: usize,
    /// The data of the present operation has passed, whatever became of it.
    passed: bool,
    /// Where the time of small transfers went that nobody was told of yet.
    pub(super) untold: Spent,
}

/// Where data connections come from, with those that are open.
pub struct Handle {
    /// As frozen when the handle was made.
    pub params: DataParams,
    /// What connections must prove.
    pub guard: Arc<Guard>,
    /// Who connects.
    pub rendezvous: Rendezvous,
    /// One for each address of the other side (one in all when this side listens).
    pub lanes: Vec<Lane>,
    direction: Option<Way>,
}

/// Who connects to whom.
pub enum Rendezvous {
    /// The peer connects here.
    Listen(Listener),
    /// This side connects to the lanes' targets.
    Connect,
}

/// The connections that lead to one address.
#[derive(Default)]
pub struct Lane {
    /// Where to connect; `None` when this side listens.
    pub target: Option<SocketAddr>,
    /// Open connections (MODE E).
    pub connections: Vec<Connection>,
    /// Connections that were asked for and not taken yet.
    pub dialled: Vec<Dialling>,
}

impl Session {
    /// No data handle yet.
    pub fn new(node: Arc<Node>, identity: &Identity) -> Self {
        let ip = |addr: Option<SocketAddr>| addr.map(|addr| addr.ip().to_canonical());
        Self {
            node,
            control_peer: ip(identity.control_peer),
            control_local: ip(identity.control_local),
            peers: identity.data_peers.clone(),
            listening: Vec::new(),
            secrets: identity.secrets.clone(),
            credential: None,
            handle: None,
            counted: 0,
            passed: false,
            untold: Spent::default(),
        }
    }

    /// Closes the data handle with its listener and connections.
    pub fn close(&mut self) {
        if let Some(handle) = &self.handle {
            handle.count_network(&self.node);
        }
        self.handle = None;
        self.count_channels();
    }

    /// DCSC: data connections show this from now on, or again what was handed on at login.
    ///
    /// Fails with `CredentialRejected` or `CredentialExpired`; then it is what was handed on.
    pub fn bring_credential(&mut self, given: Option<&Secret>) -> Result<Outcome, Fault> {
        self.close();
        self.credential = None;
        if let Some(pem) = given {
            let refused = |fault: TrustFault| {
                let fault = fault.into_fault("take data credential", Side::Peer);
                if fault.subject.is_empty() { fault.subject("of DCSC P") } else { fault }
            };
            let judged = DataCredential::brought(&pem.0, &self.node.authorities).map_err(refused)?;
            self.credential = Some(Arc::new(judged));
        }
        Ok(Outcome::Done)
    }

    /// What connections of a handle with these parameters must prove.
    fn guard(&mut self, params: &DataParams, comes: bool) -> Result<Guard, Fault> {
        let Shield::Gsi { peer, level } = &params.shield else {
            return Guard::new(params, &self.secrets, comes);
        };
        let credential = self.credential()?;
        Guard::gsi(credential, (peer, *level), &self.node.authorities, comes)
    }

    /// What data connections show.
    fn credential(&mut self) -> Result<Arc<DataCredential>, Fault> {
        const OP: &str = "protect data channel";
        let refused = |fault: TrustFault| fault.into_fault(OP, Side::Peer);
        if let Some(credential) = &self.credential {
            credential.alive().map_err(refused)?;
            return Ok(credential.clone());
        }
        let Some(pem) = &self.secrets.credential else {
            let why = "there is no credential to show: log in with delegation, or send DCSC or DCAU N";
            return Err(Fault::new(FaultCode::CredentialMissing, OP).side(Side::Peer).detail(why));
        };
        let credential = DataCredential::handed_on(&pem.0, &self.node.authorities);
        let credential = Arc::new(credential.map_err(refused)?);
        Ok(self.credential.insert(credential).clone())
    }

    /// What the server's logins wait at, of the addresses of the next PORT.
    pub fn listening_of_server(&mut self, addresses: Vec<SocketAddr>) {
        self.listening = addresses;
    }

    /// PASV, EPSV, SPAS: listens.
    pub fn passive(&mut self, family: Option<Family>, params: &DataParams) -> Result<Outcome, Fault> {
        self.close();
        if params.relay.is_some() {
            return Err(wrong_relay("nobody listens where a relay is between: send PORT"));
        }
        let guard = Arc::new(self.guard(params, true)?);
        let ip = self.listen_ip(family)?;
        let ports = self.node.settings.data_ports;
        let range = ports.map(|(min, max)| PortRange::new(min, max)).transpose()?;
        let options = channel_options(&self.node, params);
        let mut listener = tcp::listen(SocketAddr::new(ip, 0), range, &options)?;
        if !self.admits_all(params) {
            let (peers, control_peer) = (self.peers.clone(), self.control_peer);
            listener.set_filter(Arc::new(move |from: SocketAddr| peers.admits(from.ip(), control_peer)));
        }
        let door = guard.clone();
        listener.set_shielding(Arc::new(move |channel| door.shield(channel)));
        let told = self.told_address(ip, listener.local_addr().port());
        self.open(params, guard, Rendezvous::Listen(listener), vec![Lane::default()]);
        Ok(Outcome::Listening(vec![told]))
    }

    /// PORT, EPRT, SPOR: remembers where to connect, and calls our own peers at once.
    pub fn active(&mut self, targets: &[SocketAddr], params: &DataParams) -> Result<Outcome, Fault> {
        self.close();
        check_relay(targets, params)?;
        check_number(targets)?;
        let params = &bounded(params, targets.len());
        // At a relay both ends call, and one of them answers in TLS.
        let guard = Arc::new(self.guard(params, params.relay == Some(Part::Server))?);
        let listening = std::mem::take(&mut self.listening);
        for &target in targets {
            self.check_target(target, params, &listening)?;
        }
        // Our own clients' transfers follow soon, and their listeners know whom they wait for. Of several addresses each
        // node of a striped server calls only some.
        // A relay waits for what connections say first, which the transfer tells it.
        let ours = params.nonce.is_some() && params.relay.is_none();
        let ahead = targets.len() == 1 && params.mode == Mode::Extended && ours;
        let lane = |&target: &SocketAddr| {
            let target = SocketAddr::new(target.ip().to_canonical(), target.port());
            let dialled = if ahead { dial::dial_ahead(&self.node, params, target) } else { Vec::new() };
            Lane { target: Some(target), connections: Vec::new(), dialled }
        };
        let lanes = targets.iter().map(lane).collect();
        self.open(params, guard, Rendezvous::Connect, lanes);
        Ok(Outcome::Done)
    }

    fn open(&mut self, params: &DataParams, guard: Arc<Guard>, rendezvous: Rendezvous, lanes: Vec<Lane>) {
        self.handle = Some(Handle { params: params.clone(), guard, rendezvous, lanes, direction: None });
    }

    /// The handle for a transfer in this direction.
    pub fn acquire(&mut self, way: Way) -> Result<&mut Handle, Problem> {
        let handle = self
            .handle
            .as_mut()
            .ok_or(Problem::NoDataHandle("no data connection was prepared: send PASV or PORT first"))?;
        if handle.direction.is_some_and(|before| before != way) {
            return Err(Problem::NoDataHandle("data connections serve one direction: send PASV or PORT again"));
        }
        if !handle.reused() {
            handle.guard.check()?;
        }
        handle.guard.heads(way);
        Ok(handle)
    }

    /// Lends the handle to a transfer; [`Session::put_back`] follows in every case.
    pub fn take(&mut self) -> Result<Handle, Problem> {
        let handle = self.handle.take().ok_or(Problem::NoDataHandle("the data handle is in use"))?;
        // While a transfer runs its channels are counted there, new ones and lost ones too.
        self.count_channels();
        Ok(handle)
    }

    /// Ends the loan.
    pub fn put_back(&mut self, handle: Handle) {
        self.handle = Some(handle);
    }

    /// An operation begins.
    pub fn expect_data(&mut self) {
        self.passed = false;
    }

    /// Whether the data of the present operation has passed completely.
    pub fn data_passed(&self) -> bool {
        self.passed
    }

    /// After a transfer over the handle: keeps what can be used again.
    pub fn release(&mut self, way: Way, complete: bool, bytes: u64) {
        self.passed = complete;
        let Some(handle) = &mut self.handle else {
            return;
        };
        handle.direction = Some(way);
        if !complete || handle.params.mode == Mode::Stream {
            return self.close();
        }
        // A system call for each connection: not for every small file.
        if bytes > 1 << 20 {
            handle.count_network(&self.node);
        }
        self.count_channels();
    }

    /// Tells statistics how many connections are open.
    fn count_channels(&mut self) {
        let now = self.handle.as_ref().map_or(0, Handle::connections);
        if now != self.counted {
            self.node.stats.channels(self.counted, now);
            self.counted = now;
            self.node.load_changed();
        }
    }

    fn admits_all(&self, params: &DataParams) -> bool {
        let nonce = params.mode == Mode::Extended && params.nonce.is_some();
        self.peers == DataPeers::Anyone || nonce || params.shield != Shield::None
    }

    fn check_target(&self, target: SocketAddr, params: &DataParams, listening: &[SocketAddr]) -> Result<(), Fault> {
        let known = self.peers.admits(target.ip(), self.control_peer);
        let refused = |why: &str| {
            Err(Fault::new(FaultCode::DataPeerRejected, "connect data channel").subject(target.to_string()).detail(why))
        };
        if target.port() < FIRST_FREE_PORT {
            return refused("ports below 1024 are never connected to");
        }
        if !known && !self.admits_all(params) {
            return refused(
                "the address is neither that of the control connection nor one that third parties may have",
            );
        }
        // Who is called shows nothing to us, and gets what the client likes.
        if !known && nonce_alone(params) {
            let settings = &self.node.settings;
            let own = [self.control_local, self.node.link_ip, settings.data_interface, settings.data_address];
            let own: Vec<IpAddr> = own.into_iter().flatten().map(|ip| ip.to_canonical()).collect();
            let (peers, client) = (&self.peers, self.control_peer);
            let reach = Reach { peers, client, own: &own, listening, is_here: reach::is_here };
            return reach.refusal(target).map_or(Ok(()), refused);
        }
        Ok(())
    }

    /// The address to bind: the configured interface, else where the front or the client arrived; without a wish of the family
    /// of the control connection (RFC 2428 §3), for a client may know no other.
    fn listen_ip(&self, family: Option<Family>) -> Result<IpAddr, Fault> {
        let (interface, link) = (self.node.settings.data_interface, self.node.link_ip);
        let is_v4 = |ip: IpAddr| ip.to_canonical().is_ipv4();
        let wanted = family.map(|family| family == Family::V4).or(self.control_local.or(link).map(is_v4));
        let candidates = [interface, link.or(self.control_local)].into_iter().flatten();
        let mut fitting = candidates.filter(|ip| wanted.is_none_or(|v4| is_v4(*ip) == v4));
        match (fitting.next(), wanted) {
            (Some(ip), _) => Ok(ip.to_canonical()),
            (None, Some(true)) => self.other_family(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            (None, Some(false)) => self.other_family(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            (None, None) => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        }
    }

    /// Another family than the interface's: possible when the address to tell is known otherwise.
    fn other_family(&self, any: IpAddr) -> Result<IpAddr, Fault> {
        let known = self.node.settings.data_address;
        if known.is_some_and(|ip| ip.is_ipv4() == any.is_ipv4()) {
            return Ok(any);
        }
        let loopback = match any {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        if self.control_local.is_some_and(|ip| ip.is_loopback()) {
            return Ok(loopback);
        }
        let fault = Fault::new(FaultCode::NotSupported, "listen for data channels");
        Err(fault.detail("no address of this family is configured for data"))
    }

    fn told_address(&self, bound: IpAddr, port: u16) -> SocketAddr {
        let told = self.node.settings.data_address.filter(|ip| ip.is_ipv4() == bound.is_ipv4());
        SocketAddr::new(told.unwrap_or(bound), port)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

impl Handle {
    /// Open connections in all lanes.
    pub fn connections(&self) -> usize {
        self.lanes.iter().map(|lane| lane.connections.len()).sum()
    }

    /// Whether connections of an earlier transfer will be used again.
    pub fn reused(&self) -> bool {
        self.connections() > 0
    }

    /// What a striped sender's node sends where.
    ///
    /// A listening sender is one address of as many as there are nodes (its peer connects to all). Of connecting
    /// senders, each address has at least one; with more nodes than addresses several share one.
    pub fn share(&self, stripe: Stripe) -> Share {
        let (index, count) = (usize::from(stripe.index), usize::from(stripe.count).max(1));
        match self.rendezvous {
            Rendezvous::Listen(_) => {
                let feed = Feed { lane: 0, target: index, rank: 0, feeders: 1 };
                Share { targets: count, feeds: vec![feed] }
            }
            Rendezvous::Connect => Share { targets: self.lanes.len(), feeds: feeds(index, count, self.lanes.len()) },
        }
    }

    /// The addresses that a striped receiver's node connects to: a listening sender serves one receiver.
    pub fn receives_from(&self, stripe: Stripe) -> Vec<usize> {
        let (index, count) = (usize::from(stripe.index), usize::from(stripe.count).max(1));
        (0..self.lanes.len()).filter(|lane| lane % count == index).collect()
    }

    /// What each connection says first, where a relay is between.
    pub fn hello(&self) -> Option<[u8; HELLO_BYTES]> {
        let (part, nonce) = (self.params.relay?, self.params.nonce.as_ref()?);
        Some(Hello { token: psk::relay_token(nonce), part }.encode())
    }

    /// The other end, for logs.
    pub fn peer(&self) -> Option<SocketAddr> {
        let open = self.lanes.iter().flat_map(|lane| &lane.connections).next();
        let target = self.lanes.first().and_then(|lane| lane.target);
        open.and_then(|connection| connection.channel().peer_addr()).or(target)
    }

    fn count_network(&self, node: &Node) {
        for connection in self.lanes.iter().flat_map(|lane| &lane.connections) {
            node.stats.channel(connection.channel());
        }
    }
}

/// Which part of a striped transmission falls to this node.
#[derive(Debug, PartialEq, Eq)]
pub struct Share {
    /// Addresses in all.
    pub targets: usize,
    /// This node's.
    pub feeds: Vec<Feed>,
}

/// What one node sends to one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feed {
    /// The lane that leads there.
    pub lane: usize,
    /// Which of all addresses it is.
    pub target: usize,
    /// Which of the nodes that send there this one is; the first announces the end for all.
    pub rank: usize,
    /// How many nodes send there.
    pub feeders: usize,
}

/// What node `index` of `count` sends to which of `targets` addresses, so that all nodes send the same amount.
///
/// Where one number divides the other, each node has addresses of its own or each address nodes of its own; otherwise
/// every node sends its part to every address.
fn feeds(index: usize, count: usize, targets: usize) -> Vec<Feed> {
    let feed = |target, rank, feeders| Feed { lane: target, target, rank, feeders };
    if count.is_multiple_of(targets) {
        return vec![feed(index % targets, index / targets, count / targets)];
    }
    if targets.is_multiple_of(count) {
        return (index..targets).step_by(count).map(|target| feed(target, 0, 1)).collect();
    }
    (0..targets).map(|target| feed(target, index, count)).collect()
}

/// Whether a nonce is all that connections of such a handle show, and nothing is asked of their other end.
fn nonce_alone(params: &DataParams) -> bool {
    params.mode == Mode::Extended && params.nonce.is_some() && params.shield == Shield::None
}

/// Whoever passes bytes on must be able neither to read nor to change them.
fn check_relay(targets: &[SocketAddr], params: &DataParams) -> Result<(), Fault> {
    if params.relay.is_none() {
        return Ok(());
    }
    match (params.mode, &params.shield, targets.len()) {
        (Mode::Extended, Shield::Nonce, 1) => Ok(()),
        _ => Err(wrong_relay(
            "a relay is used in MODE E, by one address, and encrypted with a nonce (PROT P, SITE DCNONCE)",
        )),
    }
}

/// A client must not have this host call whole networks.
fn check_number(targets: &[SocketAddr]) -> Result<(), Fault> {
    let wrong =
        |why: String| Err(Fault::new(FaultCode::InvalidArgument, "connect data channels").side(Side::Peer).detail(why));
    if targets.len() > MOST_CALLED {
        return wrong(format!("{MOST_CALLED} addresses at most are called for one transfer"));
    }
    let canonical = |target: &SocketAddr| SocketAddr::new(target.ip().to_canonical(), target.port());
    let mut seen = BTreeSet::new();
    match targets.iter().map(canonical).find(|target| !seen.insert(*target)) {
        Some(twice) => wrong(format!("{twice} is named twice")),
        None => Ok(()),
    }
}

/// The parameters of a handle that calls so many addresses.
fn bounded(params: &DataParams, targets: usize) -> DataParams {
    let most = u16::try_from(MOST_CALLED / targets.max(1)).unwrap_or(u16::MAX);
    DataParams { parallelism: params.parallelism.min(most.max(1)), ..params.clone() }
}

fn wrong_relay(detail: &str) -> Fault {
    Fault::new(FaultCode::InvalidArgument, "connect by a relay").side(Side::Peer).detail(detail)
}

/// How many connections to open to each address.
pub fn parallelism(params: &DataParams) -> usize {
    match params.mode {
        Mode::Stream => 1,
        Mode::Extended => usize::from(params.parallelism).clamp(1, usize::from(MOST_CONNECTIONS)),
    }
}

/// Tuning of data channels.
pub fn channel_options(node: &Node, params: &DataParams) -> ChannelOptions {
    ChannelOptions {
        send_buffer: params.send_buffer.map(|bytes| bytes as usize),
        recv_buffer: params.receive_buffer.map(|bytes| bytes as usize),
        congestion: params.congestion.clone().or_else(|| node.settings.congestion.clone()),
        ..ChannelOptions::default()
    }
}

/// From where and how to connect.
pub fn connect_options(node: &Node, params: &DataParams) -> ConnectOptions {
    ConnectOptions {
        source_address: node.settings.data_interface,
        source_ports: None,
        timeout: node.settings.connect_timeout,
        channel: channel_options(node, params),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_calls_no_more_connections_than_a_host_should_and_no_address_twice() {
        let wanted = DataParams { mode: Mode::Extended, parallelism: 1000, ..DataParams::default() };
        for targets in [1, 2, 3, 100, MOST_CALLED] {
            let each = parallelism(&bounded(&wanted, targets));
            assert!(each >= 1 && each * targets <= MOST_CALLED, "{targets} addresses, {each} connections to each");
        }
        assert_eq!(bounded(&DataParams { parallelism: 4, ..wanted.clone() }, 100).parallelism, 4);
        let address = |port: usize| SocketAddr::from(([192, 0, 2, 1], port as u16));
        let many: Vec<SocketAddr> = (0..=MOST_CALLED).map(|number| address(2000 + number)).collect();
        assert!(check_number(&many).is_err() && check_number(&many[1..]).is_ok());
        let mapped = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(), 2000));
        assert!(check_number(&[address(2000), address(2001), mapped]).is_err());
    }

    #[test]
    fn nodes_and_addresses_share_evenly_whatever_their_numbers() {
        for (count, targets) in [(1, 1), (2, 2), (1, 3), (3, 1), (2, 4), (4, 2), (3, 2), (2, 3), (5, 3), (4, 6)] {
            let all: Vec<Vec<Feed>> = (0..count).map(|index| feeds(index, count, targets)).collect();
            // Of the whole file, in parts that every division here comes out even in.
            let whole = count * targets;
            let part = |feed: &Feed| whole / targets / feed.feeders;
            for feeds in &all {
                assert_eq!(feeds.iter().map(part).sum::<usize>(), targets, "{count} to {targets}: {feeds:?}");
            }
            for target in 0..targets {
                let mut ranks: Vec<_> = all.iter().flatten().filter(|feed| feed.target == target).collect();
                ranks.sort_by_key(|feed| feed.rank);
                let feeders = ranks[0].feeders;
                assert!(ranks.iter().map(|feed| feed.rank).eq(0..feeders), "{count} to {targets}: {ranks:?}");
                assert!(ranks.iter().all(|feed| (feed.feeders, feed.lane) == (feeders, target)));
            }
        }
    }
}
