//! This host as one end of a transfer: a mover inside this process.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use whimbrel_connector::Connector;
use whimbrel_connector::posix::Posix;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Failure, FailureKind, Notice, Op, OpId, Outcome};
use whimbrel_proto::rules::LoginRules;
use whimbrel_transport::tcp::PortRange;

use super::grid::Credential;
use super::remote::EndEvent;
use super::reply;
use crate::front::link::{MoverEvent, MoverHandle, MoverLink};
use crate::mover::message::{DataPeers, DataSettings, FromMover, Identity, Secrets, Stripe, ToMover};
use crate::mover::posix_options;

/// Names the address that servers are to be told.
const DATA_IP: &str = "GLOBUS_FTP_CLIENT_DATA_IP";

/// The data side of this process; movers are made from it as sessions need them.
#[derive(Clone)]
pub struct LocalData {
    link: Arc<MoverLink>,
}

/// What local data handling obeys.
#[derive(Debug, Clone, Default)]
pub struct LocalOptions {
    /// Ports for data listeners, both ends included (`GLOBUS_TCP_PORT_RANGE`).
    pub data_ports: Option<(u16, u16)>,
    /// Address told to servers instead of the bound one (`GLOBUS_FTP_CLIENT_DATA_IP`).
    pub data_address: Option<IpAddr>,
    /// Directory of the authorities that certificates on data connections are judged by; `None`: there are none.
    pub authorities: Option<PathBuf>,
}

impl LocalOptions {
    /// What sites set in `GLOBUS_TCP_PORT_RANGE` and `GLOBUS_FTP_CLIENT_DATA_IP`; an empty variable is none.
    ///
    /// # Errors
    /// `InvalidArgument`, with the variable: data connections would be where no firewall expects them.
    pub fn from_environment() -> Result<Self, Fault> {
        let ports = PortRange::listen_from_env()?;
        let address = std::env::var(DATA_IP).ok().filter(|text| !text.trim().is_empty());
        let parse = |text: String| {
            let bad = |_| Fault::new(FaultCode::InvalidArgument, "read data address").side(Side::Us);
            text.trim().parse().map_err(|error| bad(error).subject(format!("{DATA_IP}={text}")))
        };
        Ok(Self {
            data_ports: ports.map(|range| (range.min(), range.max())),
            data_address: address.map(parse).transpose()?,
            authorities: None,
        })
    }
}

impl LocalData {
    /// Starts the data side on threads of this process.
    pub async fn start(options: &LocalOptions) -> Result<Self, Fault> {
        let failed = |error| Fault::from_io(error, "start data side").side(Side::Us);
        // The threads end by themselves when the stream closes.
        let (ours, _thread) = crate::mover::process::spawn_in_process(connector).map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let stream = tokio::net::UnixStream::from_std(ours).map_err(failed)?;
        let link = MoverLink::open(stream, settings(options)).await?;
        Ok(Self { link })
    }

    /// A mover for data connections with the server whose control connection has these addresses; they prove who they are
    /// with the credential of the login there.
    pub fn attach(
        &self,
        addresses: Option<(SocketAddr, SocketAddr)>,
        credential: Option<Arc<Credential>>,
    ) -> Result<Local, Fault> {
        let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let (peer, local) = addresses.unwrap_or((loopback, loopback));
        let identity = Identity {
            user: "local".to_owned(),
            login: Identity::new_login(),
            control_peer: Some(peer),
            control_local: Some(local),
            data_peers: DataPeers::Anyone,
            secrets: Secrets {
                credential: credential.as_deref().map(Credential::pem).transpose()?,
                ..Secrets::default()
            },
            rules: LoginRules::unlimited(),
        };
        let (sender, events) = mpsc::unbounded_channel();
        let mover = self.link.attach(identity, 0, sender)?;
        Ok(Local { mover, events, credential, queued: VecDeque::new(), last_op: 0, pending: 0 })
    }
}

fn connector(settings: &DataSettings) -> Result<Arc<dyn Connector>, Fault> {
    let root = std::path::Path::new(OsStr::from_bytes(&settings.root));
    Ok(Arc::new(Posix::open(root, posix_options(settings)?)?))
}

fn settings(options: &LocalOptions) -> DataSettings {
    DataSettings {
        data_ports: options.data_ports,
        data_address: options.data_address,
        authorities: options.authorities.as_ref().map(|path| path.as_os_str().as_bytes().to_vec()),
        ..DataSettings::of(*b"/", Duration::from_secs(600), Duration::from_secs(20))
    }
}

/// Interval in which a sender tells how much has moved.
const MARKERS: Duration = Duration::from_secs(1);

/// One local mover.
pub struct Local {
    mover: MoverHandle,
    events: mpsc::UnboundedReceiver<(usize, MoverEvent)>,
    credential: Option<Arc<Credential>>,
    queued: VecDeque<(OpId, EndEvent)>,
    last_op: u64,
    pending: usize,
}

impl Local {
    /// Hands an operation to the mover; operations run in order. Of what it sends it tells how much: not every server does of
    /// what it receives.
    pub fn submit(&mut self, mut op: Op) -> Result<OpId, Fault> {
        if let Op::Send(send) = &mut op {
            send.performance_interval.get_or_insert(MARKERS);
        }
        self.last_op += 1;
        let id = OpId(self.last_op);
        self.mover.send(ToMover::Run {
            mover: self.mover.id,
            id,
            op: Box::new(op),
            stripe: Stripe::WHOLE,
            session: None,
        })?;
        self.pending += 1;
        Ok(id)
    }

    /// What it shows on data connections.
    pub fn credential(&self) -> Option<&Arc<Credential>> {
        self.credential.as_ref()
    }

    /// Ends a running operation early; its end is still reported.
    pub fn abort(&mut self, id: OpId) -> Result<(), Fault> {
        self.mover.send(ToMover::Abort { mover: self.mover.id, id })
    }

    /// The next event of any operation. Cancel safe.
    pub async fn event(&mut self) -> Result<(OpId, EndEvent), Fault> {
        if let Some(event) = self.queued.pop_front() {
            return Ok(event);
        }
        loop {
            match self.events.recv().await {
                Some((_, MoverEvent::Message(FromMover::Notice { id, notice, .. }))) => {
                    if let Notice::Lines(lines) = &notice {
                        self.mover.send(ToMover::Heard { mover: self.mover.id, bytes: lines.len() as u64 })?;
                    }
                    return Ok((id, EndEvent::Notice(notice)));
                }
                Some((_, MoverEvent::Message(FromMover::Outcome { id, outcome, .. }))) => {
                    self.pending -= 1;
                    return Ok((id, EndEvent::Done(checked(outcome))));
                }
                Some((_, MoverEvent::Message(_) | MoverEvent::Leaving)) => {}
                Some((_, MoverEvent::Lost)) | None => {
                    return Err(Fault::new(FaultCode::Internal, "move data")
                        .side(Side::Us)
                        .detail("the local data side ended"));
                }
            }
        }
    }

    /// Submits an operation and waits for its end; events of others stay queued, its notices are dropped.
    pub async fn run(&mut self, op: Op) -> Result<Outcome, Fault> {
        let id = self.submit(op)?;
        self.finish(id).await
    }

    /// Waits for the end of an operation; its notices are dropped, and events of others stay.
    pub async fn finish(&mut self, id: OpId) -> Result<Outcome, Fault> {
        let mut others = VecDeque::new();
        let result = loop {
            match self.event().await {
                Ok((op, EndEvent::Done(result))) if op == id => break result,
                Ok((op, EndEvent::Notice(_))) if op == id => {}
                Ok(other) => others.push_back(other),
                Err(fault) => break Err(fault),
            }
        };
        others.append(&mut self.queued);
        self.queued = others;
        result
    }

    /// Whether every operation has ended.
    pub fn is_idle(&self) -> bool {
        self.pending == 0 && self.queued.is_empty()
    }
}

fn checked(outcome: Outcome) -> Result<Outcome, Fault> {
    match outcome {
        Outcome::Failed(failure) => Err(fault(failure)),
        outcome => Ok(outcome),
    }
}

/// The fault that a failure of the data side stands for.
pub fn fault(failure: Failure) -> Fault {
    use FailureKind as Kind;
    let (code, network) = match failure.kind {
        Kind::NotFound => (FaultCode::NotFound, false),
        Kind::PermissionDenied => (FaultCode::PermissionDenied, false),
        Kind::NotADirectory => (FaultCode::NotADirectory, false),
        Kind::IsADirectory => (FaultCode::IsADirectory, false),
        Kind::Exists => (FaultCode::AlreadyExists, false),
        Kind::NotEmpty => (FaultCode::DirectoryNotEmpty, false),
        Kind::BadPath => (FaultCode::InvalidPath, false),
        Kind::NoSpace => (FaultCode::NoSpace, false),
        Kind::FileTooLarge => (FaultCode::FileTooLarge, false),
        Kind::ReadOnly => (FaultCode::ReadOnly, false),
        Kind::Quota => (FaultCode::QuotaExceeded, false),
        Kind::Checksum => (FaultCode::ChecksumMismatch, false),
        Kind::Unproven => (FaultCode::Unverified, false),
        Kind::CannotConnect => (FaultCode::ConnectionRefused, true),
        Kind::ConnectionBroken => (FaultCode::ConnectionLost, true),
        Kind::BadData => (FaultCode::PeerMisbehaved, true),
        Kind::NoDataHandle => (FaultCode::PeerRefused, false),
        Kind::NotSupported => (FaultCode::NotSupported, false),
        Kind::NotProtected => (FaultCode::EncryptionFailed, true),
        Kind::LoginOver => (FaultCode::ServerBusy, false),
        Kind::BadArgument => (FaultCode::InvalidArgument, false),
        Kind::Busy => (reply::lack(&failure.text).unwrap_or(FaultCode::StorageBusy), false),
        Kind::SourceChanged => (FaultCode::SourceChanged, false),
        Kind::Aborted => (FaultCode::Cancelled, false),
        Kind::Other => (FaultCode::StorageIo, false),
    };
    let fault = Fault::new(code, "move data").detail(failure.text);
    if network { fault.side(Side::Network) } else { fault }
}
