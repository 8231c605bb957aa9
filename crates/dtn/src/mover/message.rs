//! The mover protocol: identity and operations in, notices and outcomes out.
//!
//! Frames on a byte stream: a length (u32, big-endian, bytes of body, at most [`Framed::MOST`]) and a
//! body in postcard form. One stream carries all movers of one front and one data process; the
//! stream's loss ends every mover on it.
//!
//! A receive over several nodes (`stripe.count > 1`) goes like this:
//!
//! 1. the front runs `Op::Receive` on one node with `session: None`; that node begins the write and
//!    answers [`FromMover::Session`], then receives its share;
//! 2. the front runs the same operation on the other nodes with `session: Some(..)`; each joins;
//! 3. every node sends its own `Opened` and ends with [`FromMover::Received`] (or a failed outcome);
//! 4. when all have, the front sends [`ToMover::Commit`] with all receipts to any one of the nodes;
//!    its [`FromMover::Outcome`] ends the operation. Without a commit the unfinished file stays for
//!    a restart.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use whimbrel_connector::{Receipt, WriteSession};
use whimbrel_proto::command::Secret;
use whimbrel_proto::leaf;
use whimbrel_proto::op::{Notice, Op, OpId, Outcome, ReceiveSpec};
use whimbrel_proto::rules::{LoginRules, Networks};

use crate::confine::Sandbox;

/// Version of these messages; both sides must agree.
pub const VERSION: u32 = 12;

/// Largest body of most messages, bytes.
pub const MAX_FRAME: usize = 1 << 20;

/// Largest body of [`Outcome::Chunked`], bytes: a file that is there in part has at most 65,536 leaves, with digests of 128 digits
/// (150 bytes each), and as many ranges of holes (20 bytes).
pub const MAX_CHUNKED: usize = 12 << 20;

/// What these streams carry.
pub trait Framed: Serialize + DeserializeOwned {
    /// Largest body, bytes.
    const MOST: usize = MAX_FRAME;

    /// Whether this body may be longer than [`MAX_FRAME`]: lists of a few bytes an item take many times as much once they are decoded.
    fn may_be_long(_body: &[u8]) -> bool {
        false
    }
}

impl Framed for ToMover {}

impl Framed for FromMover {
    const MOST: usize = MAX_CHUNKED;

    fn may_be_long(body: &[u8]) -> bool {
        // Both variants, the names of mover and operation between them, the session, the number of leaves.
        let begin = postcard::take_from_bytes::<(u32, u64, u64, u32, &[u8], usize)>(body);
        begin.is_ok_and(|((message, _, _, outcome, _, leaves), _)| {
            (message, outcome) == CHUNKED_VARIANTS && leaves <= leaf::MAX_LEAVES
        })
    }
}

/// The places of [`FromMover::Outcome`] and [`Outcome::Chunked`] among their variants.
const CHUNKED_VARIANTS: (u32, u32) = (2, 4);

/// Bytes of [`Notice::Lines`] that a mover sends before it waits for [`ToMover::Heard`].
pub const LINES_AHEAD: u64 = 256 << 10;

/// Names one mover on one stream; chosen by the front, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MoverId(pub u64);

/// From the front to the data side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToMover {
    /// First message on the stream.
    Hello {
        /// [`VERSION`] of the front.
        version: u32,
        /// What every mover on this stream obeys.
        settings: Box<DataSettings>,
    },
    /// A control connection logged in: make its mover.
    Attach {
        /// The new mover.
        mover: MoverId,
        /// On whose behalf.
        identity: Box<Identity>,
    },
    /// Carry out one operation; operations of one mover run in order.
    Run {
        /// The mover.
        mover: MoverId,
        /// Echoed in notices and the outcome.
        id: OpId,
        /// What to do.
        op: Box<Op>,
        /// This node's share of a striped operation.
        stripe: Stripe,
        /// A receive that another node began: join it instead of beginning one.
        session: Option<Box<WriteSession>>,
    },
    /// Complete a receive that several nodes carried out, from the receipts of all of them; runs in
    /// order like an operation and is answered by an [`FromMover::Outcome`].
    Commit {
        /// The mover.
        mover: MoverId,
        /// Echoed in the outcome; may be the id of the receive itself.
        id: OpId,
        /// The receive, for checksum and attributes.
        spec: Box<ReceiveSpec>,
        /// From [`FromMover::Session`].
        session: Box<WriteSession>,
        /// From every [`FromMover::Received`].
        receipts: Vec<Receipt>,
        /// Sum of the bytes of every [`FromMover::Received`].
        bytes: u64,
    },
    /// Abort this operation as soon as possible; its outcome still comes.
    Abort {
        /// The mover.
        mover: MoverId,
        /// The operation.
        id: OpId,
    },
    /// Values for logs and the transfer log.
    Label {
        /// The mover.
        mover: MoverId,
        /// `TASKID` of the transfer log.
        task: Option<String>,
        /// SITE CLIENTINFO text.
        client: Option<String>,
    },
    /// Of the addresses that the next `Op::Active` names, logins of the same server wait at these for connections that show a nonce: no services, though
    /// they may be this host's.
    Listening {
        /// The mover.
        mover: MoverId,
        /// In place of those told before.
        addresses: Vec<SocketAddr>,
    },
    /// So many bytes of [`Notice::Lines`] have been taken up: a listing goes no further ahead of a client that does not
    /// read than [`LINES_AHEAD`].
    Heard {
        /// The mover.
        mover: MoverId,
        /// Since the last message of this kind.
        bytes: u64,
    },
    /// The control connection is gone: abort, close data channels, forget the mover.
    Detach {
        /// The mover.
        mover: MoverId,
    },
    /// Finish what runs and exit when the last mover is detached.
    Drain,
}

/// From the data side to the front.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromMover {
    /// Answer to `Hello`.
    Hello {
        /// [`VERSION`] of the data side.
        version: u32,
        /// Free processors for transfers, for the front's choice of node.
        processors: u32,
        /// Number of the account that it has, which handles all data: logins that lead to another may not use it.
        uid: u32,
    },
    /// News of a running operation.
    Notice {
        /// The mover.
        mover: MoverId,
        /// The operation.
        id: OpId,
        /// The news.
        notice: Notice,
    },
    /// The end of an operation.
    Outcome {
        /// The mover.
        mover: MoverId,
        /// The operation.
        id: OpId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A striped receive began here: what the other nodes need to join it.
    Session {
        /// The mover.
        mover: MoverId,
        /// The operation.
        id: OpId,
        /// For [`ToMover::Run`] on the other nodes and for [`ToMover::Commit`].
        session: Box<WriteSession>,
    },
    /// This node's share of a striped receive is stored; ends the operation here, in place of an
    /// outcome.
    Received {
        /// The mover.
        mover: MoverId,
        /// The operation.
        id: OpId,
        /// Bytes this node stored.
        bytes: u64,
        /// For [`ToMover::Commit`].
        receipt: Box<Receipt>,
    },
    /// Counters since the last report, at most twice a second, for metrics.
    Load(Load),
    /// The transfers that run now, in place of those of the last report, for metrics.
    Transfers(Box<Transfers>),
    /// This data process takes no new work: it finishes what runs and leaves when its last mover is detached.
    Leaving,
}

/// A node's part in an operation that several nodes carry out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stripe {
    /// This node, from 0.
    pub index: u16,
    /// Nodes engaged; 1 without striping.
    pub count: u16,
}

impl Stripe {
    /// The whole operation on one node.
    pub const WHOLE: Stripe = Stripe { index: 0, count: 1 };
}

/// What every mover of a data process obeys; the administrator's configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataSettings {
    /// Directory that appears as `/`, raw bytes.
    pub root: Vec<u8>,
    /// Refuse every change.
    pub read_only: bool,
    /// Ports for data listeners, both ends included; `None`: any.
    pub data_ports: Option<(u16, u16)>,
    /// Local address that data listeners bind and data connections leave from; `None`: that of the
    /// control connection.
    pub data_interface: Option<IpAddr>,
    /// Address told to peers instead of the bound one, for hosts behind address translation.
    pub data_address: Option<IpAddr>,
    /// Buffers in use at most, bytes, for sending and for receiving each.
    pub pool_bytes: u64,
    /// Flush data before a range marker and before a transfer is reported complete.
    pub sync_writes: bool,
    /// Write and read large files past the page cache.
    pub direct_io: bool,
    /// A transfer that moves nothing for this long has stalled.
    pub stall_timeout: Duration,
    /// How long a data connection may take to be made.
    pub connect_timeout: Duration,
    /// Congestion control for data channels; `None`: the system's default.
    pub congestion: Option<String>,
    /// The program `lfs` of Lustre, raw bytes, or nothing to leave layouts alone; `None`: where it usually is.
    pub lfs: Option<Vec<u8>>,
    /// How far the data process is confined.
    pub sandbox: Sandbox,
    /// Directory of the authorities that certificates of data connections are judged by, raw bytes; `None`: there is no GSI.
    pub authorities: Option<Vec<u8>>,
}

/// What a data node decides for itself; `None` leaves what its front says. Of what forbids or secures something, either's word counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeOverrides {
    /// As in [`DataSettings`].
    pub root: Option<Vec<u8>>,
    /// As in [`DataSettings`].
    pub read_only: bool,
    /// As in [`DataSettings`].
    pub data_ports: Option<(u16, u16)>,
    /// As in [`DataSettings`].
    pub data_interface: Option<IpAddr>,
    /// As in [`DataSettings`].
    pub data_address: Option<IpAddr>,
    /// As in [`DataSettings`].
    pub pool_bytes: Option<u64>,
    /// As in [`DataSettings`].
    pub sync_writes: bool,
    /// As in [`DataSettings`].
    pub direct_io: bool,
    /// As in [`DataSettings`].
    pub congestion: Option<String>,
    /// As in [`DataSettings`].
    pub lfs: Option<Vec<u8>>,
    /// As in [`DataSettings`]; what confines the processes of a host is that host's own matter.
    pub sandbox: Option<Sandbox>,
    /// This host's address on the way to the front, where data listeners are by default.
    pub link_ip: Option<IpAddr>,
}

impl DataSettings {
    /// Nothing but a directory: nothing forbidden, confined or recorded, and stalls and unmade connections given up after these times.
    pub fn of(root: impl Into<Vec<u8>>, stall_timeout: Duration, connect_timeout: Duration) -> Self {
        Self {
            root: root.into(),
            read_only: false,
            data_ports: None,
            data_interface: None,
            data_address: None,
            pool_bytes: 64 << 20,
            sync_writes: false,
            direct_io: false,
            stall_timeout,
            connect_timeout,
            congestion: None,
            lfs: None,
            sandbox: Sandbox::Off,
            authorities: None,
        }
    }

    /// Puts a data node's own decisions in force.
    pub fn overridden(mut self, own: NodeOverrides) -> Self {
        self.root = own.root.unwrap_or(self.root);
        self.read_only |= own.read_only;
        self.pool_bytes = own.pool_bytes.unwrap_or(self.pool_bytes);
        self.sync_writes |= own.sync_writes;
        self.direct_io |= own.direct_io;
        self.congestion = own.congestion.or(self.congestion);
        self.lfs = own.lfs.or(self.lfs);
        self.sandbox = own.sandbox.unwrap_or(self.sandbox);
        self.data_ports = own.data_ports.or(self.data_ports);
        self.data_interface = own.data_interface.or(self.data_interface);
        self.data_address = own.data_address.or(self.data_address);
        self
    }
}

/// On whose behalf a mover acts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Name for logs.
    pub user: String,
    /// Tells its parts of unfinished files from those of others: see [`Identity::new_login`].
    pub login: u64,
    /// Where the control client is, as the server sees it.
    pub control_peer: Option<SocketAddr>,
    /// Local address of the control connection: the default data address.
    pub control_local: Option<SocketAddr>,
    /// Who may be the other end of a data connection without a nonce.
    pub data_peers: DataPeers,
    /// What data connections are proven with; secrets of one login.
    pub secrets: Secrets,
    /// What the login may do, how much of it, and until when.
    pub rules: LoginRules,
}

impl Identity {
    /// A number that no other login has, here or on another host.
    pub fn new_login() -> u64 {
        RandomState::new().hash_one(std::process::id())
    }
}

/// What one login's data connections are proven with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Secrets {
    /// Keys of the session tickets that the control connection gave its client (80 bytes); data connections continue its
    /// session (RFC 4217 §10.2).
    pub tickets: Option<Secret>,
    /// The session itself, for clients that name it and have no ticket (TLS 1.2).
    pub session: Option<Secret>,
    /// What the client handed on at login (GSI): PEM, a certificate, its key and those above it. Data connections show it, and
    /// expect its identity at their other end (DCAU A).
    pub credential: Option<Secret>,
}

/// Who may be the other end of a data connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataPeers {
    /// The control client's own address only.
    ControlPeer,
    /// The control client's own address, and those in these networks.
    ControlPeerAnd(Networks),
    /// Any address: third-party copies without a nonce work, and so do bounce and port theft.
    Anyone,
}

impl DataPeers {
    /// Whether a data connection may lead to this address or come from it; a control connection without an address (standard
    /// input) is this host's.
    pub fn admits(&self, address: IpAddr, control_peer: Option<IpAddr>) -> bool {
        let address = address.to_canonical();
        let own = control_peer.map_or(address.is_loopback(), |peer| peer == address);
        own || match self {
            Self::ControlPeer => false,
            Self::ControlPeerAnd(networks) => networks.contains(address),
            Self::Anyone => true,
        }
    }
}

/// What a data process did since its last report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Bytes received and stored.
    pub bytes_received: u64,
    /// Bytes read and sent.
    pub bytes_sent: u64,
    /// Transfers that ended well.
    pub transfers_done: u64,
    /// Transfers that failed.
    pub transfers_failed: u64,
    /// TCP segments sent again by data channels.
    pub retransmits: u64,
    /// Transfers running now (a level, not a count).
    pub transfers_running: u32,
    /// Data channels open now, in use or kept for the next transfer (a level).
    pub channels_open: u32,
    /// Bytes received a second of late (a level).
    pub receive_rate: u64,
    /// Bytes sent a second of late (a level).
    pub send_rate: u64,
    /// Smoothed round-trip time of the channel that reported last, microseconds (a level; 0: unknown).
    pub rtt_us: u32,
    /// Pool bytes in use now (a level).
    pub pool_bytes: u64,
}

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    /// From the network to storage.
    In,
    /// From storage to the network.
    Out,
}

/// What a data process moves at the time of a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// Transfers that have run for a second or more, oldest first.
    pub running: Vec<RunningTransfer>,
    /// Further such transfers that the report has no room for.
    pub left_out: u32,
    /// Channels of the transfers in the report that it has no room for.
    pub channels_left_out: u32,
}

/// A transfer under way, or this node's share of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningTransfer {
    /// Unique in the data process.
    pub id: u64,
    /// Direction.
    pub way: Way,
    /// The command as logs name it, such as `RETR`.
    pub kind: String,
    /// Payload bytes moved so far.
    pub bytes: u64,
    /// Payload bytes to move in all, where known.
    pub expected: Option<u64>,
    /// Payload bytes a second of late.
    pub rate: u64,
    /// Its data channels, in the order in which it took them in use.
    pub channels: Vec<RunningChannel>,
}

/// A data channel of a transfer under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningChannel {
    /// Position among the transfer's channels, from 0.
    pub index: u32,
    /// The other end.
    pub peer: Option<SocketAddr>,
    /// Bytes carried for this transfer, headers included.
    pub bytes: u64,
    /// Smoothed round-trip time, microseconds (0: unknown).
    pub rtt_us: u32,
    /// Segments sent again since the channel was opened.
    pub retransmits: u64,
    /// Congestion window, bytes.
    pub window: u64,
}
