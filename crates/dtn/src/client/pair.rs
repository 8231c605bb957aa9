//! Two ends and the data connections between them.

use std::net::SocketAddr;
use std::rc::Rc;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{DataParams, Mode, Op, OpId, Outcome, Shield};
use whimbrel_proto::relay::Part;
use whimbrel_transport::digest::Algorithm;

use super::accord::Accord;
use super::checksum::{SharedChecksum, common_checksum};
use super::end::{End, reachable};
use super::options::DataCredential;
use super::relays::Relays;
use super::remote::EndEvent;

const CONNECT: &str = "make data connections";

/// Which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Where the bytes come from.
    Source,
    /// Where they go.
    Destination,
}

impl Role {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }

    /// The side that faults of this end are on unless they say otherwise.
    pub fn side(self) -> Side {
        match self {
            Self::Source => Side::Source,
            Self::Destination => Side::Destination,
        }
    }
}

/// How data connections are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataWish {
    /// Data channels of each file in extended block mode.
    pub parallelism: u16,
    /// Socket buffer of each, bytes; `None` leaves it to the kernels.
    pub buffer: Option<u32>,
    /// Every data node of a striped server.
    pub stripe: bool,
    /// Congestion control at ends that let clients choose; `None`: as the hosts have it.
    pub congestion: Option<String>,
    /// Encrypt what they carry, or make none.
    pub encrypt: bool,
    /// What they show.
    pub credential: DataCredential,
}

impl DataWish {
    /// One channel, neither chosen nor protected: for whoever makes no data connection.
    pub fn plain() -> Self {
        let credential = DataCredential::Usual;
        Self { parallelism: 1, buffer: None, stripe: false, congestion: None, encrypt: false, credential }
    }

    /// The listener for these connections, to be asked for before the session is known.
    ///
    /// Protected as between ends that know nonces; what a grid server of another kind needs is put in its place when it is known.
    pub fn listener(&self, nonce: [u8; 16]) -> Op {
        let shield = if self.encrypt { Shield::Nonce } else { Shield::None };
        let params = params(Mode::Extended, self, Some(nonce), shield);
        Op::Passive { striped: self.stripe, family: None, params }
    }
}

/// A listener that the destination opened ahead, asked for in the first flight of commands.
#[derive(Debug, Clone)]
pub struct Early {
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// The nonce it demands, if it took one.
    pub nonce: Option<[u8; 16]>,
    /// How its connections are protected.
    pub shield: Shield,
}

/// Data connections that stand or will be made by the next transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    /// Framing.
    pub mode: Mode,
    /// Whether a further transfer may use it.
    pub reusable: bool,
}

/// The nodes at the ends of a path, source first; `None` is the client's host.
pub type Nodes = [Option<SocketAddr>; 2];

/// Two ends.
pub struct Pair {
    /// Where the bytes come from.
    pub source: End,
    /// Where they go.
    pub destination: End,
    /// Data connections, once agreed.
    pub wire: Option<Wire>,
    /// The early listener, until it is used.
    pub early: Option<Early>,
    /// Extended block mode failed between these ends: plain streams from now on.
    pub stream_only: bool,
    /// Congestion control that the data connections were made with, where one was asked for.
    pub congestion: Option<String>,
    /// By way of whom they exchange data if neither takes connections.
    pub relays: Option<Rc<Relays>>,
    /// Both ends were given a credential for their data connections.
    pub(super) given: bool,
}

impl Pair {
    /// Two ends without data connections.
    pub fn new(source: End, destination: End) -> Self {
        Self {
            source,
            destination,
            wire: None,
            early: None,
            stream_only: false,
            congestion: None,
            relays: None,
            given: false,
        }
    }

    /// The nodes at its ends, source first; `None` is this host.
    pub fn nodes(&self) -> Nodes {
        [&self.source, &self.destination].map(|end| end.addresses().map(|(node, _)| node))
    }

    /// The end in a role.
    pub fn end(&mut self, role: Role) -> &mut End {
        match role {
            Role::Source => &mut self.source,
            Role::Destination => &mut self.destination,
        }
    }

    /// The checksum that proves copies between these ends.
    pub fn checksum(&self, wanted: Option<&str>) -> Option<SharedChecksum> {
        common_checksum(&self.source.checksums(), &self.destination.checksums(), wanted)
    }

    /// An algorithm in the spellings of both ends, for leaves where only those have it.
    pub fn checksum_of_leaves(&self, algorithm: Algorithm) -> Option<SharedChecksum> {
        let of_files = self.checksum(Some(algorithm.name()));
        of_files.or_else(|| {
            common_checksum(&self.source.leaf_checksums(), &self.destination.leaf_checksums(), Some(algorithm.name()))
        })
    }

    /// Whether both ends prove their data connections to each other.
    pub(super) fn own_pair(&self) -> bool {
        self.source.has("DCNONCE") && self.destination.has("DCNONCE")
    }

    /// The mode both ends can use.
    pub fn mode(&self) -> Mode {
        let extended = !self.stream_only && self.source.extended_mode() && self.destination.extended_mode();
        if extended { Mode::Extended } else { Mode::Stream }
    }

    /// Whether an end tells how much has moved: this host does, and servers in extended block mode (GFD.20 §4.2, 112 replies).
    pub fn tells_progress(&self) -> bool {
        let is_here = [&self.source, &self.destination].into_iter().any(|end| matches!(end, End::Local(_)));
        is_here || self.wire.is_some_and(|wire| wire.mode == Mode::Extended)
    }

    /// Agrees on new data connections; nothing may be in flight.
    ///
    /// One round trip to the listening end, none when it was asked early; the connecting end is told
    /// without waiting for its answer, which comes as an event of the returned operation.
    pub async fn connect(&mut self, wish: &DataWish) -> Result<(Role, OpId), (Role, Fault)> {
        self.wire = None;
        self.check_congestion(wish).map_err(|fault| (Role::Source, fault))?;
        self.congestion.clone_from(&wish.congestion);
        if self.source.is_outbound() && self.destination.is_outbound() {
            return self.connect_by_relay(wish).await;
        }
        let mode = self.mode();
        let accord = self.accord(mode, wish).await?;
        let listener = self.listener(mode)?;
        let (addresses, nonce) = self.listen(listener, mode, wish, &accord).await.map_err(|fault| (listener, fault))?;
        let connector = listener.other();
        let server = self.end(listener).addresses().map(|(server, _)| server.ip());
        let fixed = |address: SocketAddr| server.map_or(address, |server| reachable(address, server));
        let is_local = matches!(self.end(connector), End::Local(_));
        let targets = if is_local { addresses.into_iter().map(fixed).collect() } else { addresses };
        let op = Op::Active { targets, params: params(mode, wish, nonce, accord.shield(connector)) };
        let id = self.end(connector).submit(op).map_err(|fault| (connector, fault))?;
        self.wire = Some(Wire { mode, reusable: mode == Mode::Extended });
        Ok((connector, id))
    }

    /// Both ends dial a relay, which is told to join them. They encrypt, whatever is wished: it must be able to do no more than that.
    async fn connect_by_relay(&mut self, wish: &DataWish) -> Result<(Role, OpId), (Role, Fault)> {
        let destination = |fault| (Role::Destination, fault);
        let relays = self.relays.clone().ok_or_else(|| destination(both_outbound()))?;
        let role = [Role::Source, Role::Destination].into_iter().find(|role| !self.end(*role).has("DCRELAY"));
        if let Some(role) = role {
            return Err((role, no_relay(role.side())));
        }
        let wish = DataWish { encrypt: true, credential: DataCredential::Usual, ..wish.clone() };
        let accord = self.accord(self.mode(), &wish).await?;
        if self.mode() != Mode::Extended || !accord.nonce || accord.shield(Role::Source) != Shield::Nonce {
            return Err(destination(no_relay(Side::Destination)));
        }
        let nonce = fresh_nonce().map_err(destination)?;
        let params = params(Mode::Extended, &wish, Some(nonce), Shield::Nonce);
        let address = relays.announce(&nonce, params.parallelism).await.map_err(destination)?;
        let dial =
            |part| Op::Active { targets: vec![address], params: DataParams { relay: Some(part), ..params.clone() } };
        self.destination.run(dial(Part::Server)).await.map_err(destination)?;
        let id = self.source.submit(dial(Part::Client)).map_err(|fault| (Role::Source, fault))?;
        self.wire = Some(Wire { mode: Mode::Extended, reusable: true });
        Ok((Role::Source, id))
    }

    /// Congestion controls that the sender lets us choose, its own first.
    pub fn congestions(&self) -> Vec<String> {
        match &self.source {
            End::Remote(remote) => remote.congestions(),
            End::Local(_) => crate::congestion::own_first(None),
        }
    }

    /// Only the sender's matters; the other end gets it if it knows it.
    fn check_congestion(&self, wish: &DataWish) -> Result<(), Fault> {
        let Some(name) = &wish.congestion else { return Ok(()) };
        let allowed = self.congestions();
        if allowed.contains(name) {
            return Ok(());
        }
        let fault = Fault::new(FaultCode::InvalidArgument, "set congestion control").side(Side::Source);
        Err(fault.detail(match allowed.is_empty() {
            true => format!("the source's server does not let clients choose {name}, or any other"),
            false => format!("{name} is not allowed at the source; allowed are {}", allowed.join(", ")),
        }))
    }

    /// The sender connects in extended block mode (GFD.20 §3.3) unless the servers are ours; in
    /// stream mode a server listens for a local end, which may be behind a firewall. Who takes no connections connects.
    fn listener(&self, mode: Mode) -> Result<Role, (Role, Fault)> {
        match (self.source.is_outbound(), self.destination.is_outbound()) {
            (true, _) => return Ok(Role::Destination),
            (false, true) if mode == Mode::Stream || self.source.has("REVERSE") => return Ok(Role::Source),
            (false, true) => return Err((Role::Source, sender_connects())),
            (false, false) => {}
        }
        let to_here = matches!(self.destination, End::Local(_)) && matches!(self.source, End::Remote(_));
        let sends = to_here && (mode == Mode::Stream || self.source.has("REVERSE"));
        Ok(if sends { Role::Source } else { Role::Destination })
    }

    async fn listen(
        &mut self,
        role: Role,
        mode: Mode,
        wish: &DataWish,
        accord: &Accord,
    ) -> Result<(Vec<SocketAddr>, Option<[u8; 16]>), Fault> {
        let (own, shield) = (accord.nonce, accord.shield(role));
        // A listener that was asked for along with the login has the host's congestion control: no matter, it receives.
        let fits = |early: &Early| {
            let alike = (early.nonce.is_some(), &early.shield) == (own, &shield);
            role == Role::Destination && mode == Mode::Extended && !self.given && alike
        };
        if let Some(early) = self.early.take().filter(fits) {
            return Ok((early.addresses, early.nonce));
        }
        let nonce = own.then(fresh_nonce).transpose()?;
        let striped = wish.stripe && self.end(role).remote().is_some() && mode == Mode::Extended;
        let passive = Op::Passive { striped, family: None, params: params(mode, wish, nonce, shield) };
        let addresses = listening(self.end(role).run(passive).await?)?;
        Ok((addresses, nonce))
    }

    /// The next event of either end. Cancel safe.
    pub async fn event(&mut self) -> (Role, Result<(OpId, EndEvent), Fault>) {
        tokio::select! {
            event = self.source.event() => (Role::Source, event),
            event = self.destination.event() => (Role::Destination, event),
        }
    }
}

/// The fault of two ends neither of which takes connections.
pub fn both_outbound() -> Fault {
    Fault::new(FaultCode::PeerIncompatible, CONNECT)
        .side(Side::Destination)
        .detail(
            "neither data transfer node takes connections (whimbrel dtn --outbound), and no other one of the service passes data on \
             between such (whimbrel dtn --join URL --relay): have one do so, or copy by way of a collection whose server takes connections",
        )
}

/// The fault of an end that takes no connections and cannot meet another one at a relay, either.
fn no_relay(side: Side) -> Fault {
    let fault = Fault::new(FaultCode::PeerIncompatible, CONNECT).side(side);
    fault.detail("it takes no connections, and is too old, or not protected enough, to exchange data by way of a relay")
}

/// The fault of a sender that has to connect, to a receiver that takes no connections.
pub fn sender_connects() -> Fault {
    Fault::new(FaultCode::PeerIncompatible, CONNECT).side(Side::Source).detail(
        "the source's server connects to where it sends, and the destination takes no connections (whimbrel dtn --outbound)",
    )
}

/// The addresses in the answer to `Passive`.
pub fn listening(outcome: Outcome) -> Result<Vec<SocketAddr>, Fault> {
    match outcome {
        Outcome::Listening(addresses) if !addresses.is_empty() => Ok(addresses),
        _ => Err(Fault::new(FaultCode::PeerMisbehaved, "listen for data")
            .side(Side::Peer)
            .detail("no address in the answer")),
    }
}

/// The parameters frozen in a data handle.
pub fn params(mode: Mode, wish: &DataWish, nonce: Option<[u8; 16]>, shield: Shield) -> DataParams {
    let parallelism = if mode == Mode::Extended { wish.parallelism.max(1) } else { 1 };
    DataParams {
        mode,
        parallelism,
        send_buffer: wish.buffer,
        receive_buffer: wish.buffer,
        nonce: nonce.filter(|_| mode == Mode::Extended),
        congestion: wish.congestion.clone(),
        shield,
        ..DataParams::default()
    }
}

/// A secret for one data handle.
pub fn fresh_nonce() -> Result<[u8; 16], Fault> {
    use std::io::Read as _;
    let mut nonce = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut nonce))
        .map_err(|error| Fault::from_io(error, "make a nonce").side(Side::Us))?;
    Ok(nonce)
}
