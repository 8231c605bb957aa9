//! Small data connections of the client itself: listings of servers that cannot send them on the
//! control connection, and small files.

mod stream;

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{DataParams, ListSpec, Mode, Op, OpId, Outcome, ReceiveSpec, SendSpec, Shield, WriteKind};

use super::end::reachable;
use super::remote::Remote;

pub use self::stream::{Certified, DataStream};

/// Longest wait for a data connection, and longest silence on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest wait for the reason of a server that has closed its port.
const FAREWELL: Duration = Duration::from_secs(10);

/// Longest listing taken this way, bytes.
const MAX_LISTING: usize = 1 << 30;

/// Fetches a listing in stream mode over a passive data connection (MLSD, LIST).
pub async fn fetch_listing(remote: &mut Remote, spec: ListSpec) -> Result<Vec<u8>, Fault> {
    let path = spec.path.clone();
    fetch(remote, Op::SendListing(spec), &path).await
}

/// Fetches a small file in stream mode over a passive data connection.
pub async fn fetch_file(remote: &mut Remote, path: &[u8]) -> Result<Vec<u8>, Fault> {
    fetch(remote, Op::Send(SendSpec::of(path)), path).await
}

/// Stores a small file in stream mode over a passive data connection: a new one, or behind the first `offset` bytes of one
/// that is there.
pub async fn store(remote: &mut Remote, path: &[u8], offset: u64, bytes: &[u8]) -> Result<(), Fault> {
    let write = if offset == 0 { WriteKind::Replace } else { WriteKind::Adjusted { offset } };
    store_as(remote, path, write, bytes).await
}

/// The same, as one of the kinds of writing says.
pub async fn store_as(remote: &mut Remote, path: &[u8], write: WriteKind, bytes: &[u8]) -> Result<(), Fault> {
    let spec = ReceiveSpec { write, ..ReceiveSpec::of(path) };
    let (mut stream, storing) = open(remote, Op::Receive(spec)).await?;
    tokio::select! {
        sent = timeout(PATIENCE, stream.send(bytes)) => {
            sent.map_err(|_| Fault::new(FaultCode::TimedOut, "store").side(Side::Network))??;
            drop(stream);
            remote.finish(storing).await.map(drop)
        }
        // It cannot be complete before it was sent.
        refused = remote.finish(storing) => refused.map(drop),
    }
}

async fn fetch(remote: &mut Remote, op: Op, path: &[u8]) -> Result<Vec<u8>, Fault> {
    let subject = String::from_utf8_lossy(path).into_owned();
    let (mut stream, sending) = open(remote, op).await?;
    let mut text = Vec::new();
    tokio::select! {
        read = read_all(&mut stream, &mut text) => {
            read.map_err(|fault| fault.subject(subject))?;
            drop(stream);
            remote.finish(sending).await?;
        }
        // The control connection has nothing to tell while data flow.
        refused = remote.finish_whenever(sending) => {
            refused?;
            read_all(&mut stream, &mut text).await.map_err(|fault| fault.subject(subject))?;
        }
    }
    Ok(text)
}

/// Submits an operation that moves data, and connects to where the server listens for it.
async fn open(remote: &mut Remote, op: Op) -> Result<(DataStream, OpId), Fault> {
    let certified = remote.certified()?;
    let params = DataParams { shield: Certified::shield(certified.as_ref()), ..DataParams::default() };
    let (stream, id) = connect(remote, op, params).await?;
    Ok((DataStream::new(stream, certified.as_ref(), false)?, id))
}

/// The same at a server of ours, in a mode; with a nonce, which only the two of us know, the connection is encrypted with it.
pub async fn open_at_ours(
    remote: &mut Remote,
    op: Op,
    mode: Mode,
    nonce: Option<[u8; 16]>,
) -> Result<(DataStream, OpId), Fault> {
    let shield = if nonce.is_some() { Shield::Nonce } else { Shield::None };
    let params = DataParams { mode, nonce, shield, ..DataParams::default() };
    let (stream, id) = connect(remote, op, params).await?;
    Ok((DataStream::agreed(stream, nonce.as_ref())?, id))
}

/// Not to who takes no data connections: what it announced would be anybody's address.
async fn connect(remote: &mut Remote, op: Op, params: DataParams) -> Result<(TcpStream, OpId), Fault> {
    if remote.is_outbound() {
        let fault = Fault::new(FaultCode::PeerIncompatible, "open data connection").side(Side::Peer);
        return Err(fault
            .detail("this server takes no data connections (whimbrel dtn --outbound), and lacks what does without"));
    }
    let passive = Op::Passive { striped: false, family: None, params };
    let Outcome::Listening(addresses) = remote.run(passive).await? else {
        return Err(Fault::new(FaultCode::PeerMisbehaved, "listen for data").side(Side::Peer));
    };
    let (server, _) = remote.addresses();
    let address = addresses.first().copied().ok_or_else(|| Fault::new(FaultCode::PeerMisbehaved, "listen for data"))?;
    let address = reachable(address, server.ip());
    let stream = timeout(PATIENCE, TcpStream::connect(address));
    let id = remote.submit(op)?;
    remote.flush().await?;
    let silent =
        || Fault::new(FaultCode::TimedOut, "open data connection").subject(address.to_string()).side(Side::Network);
    let stream = stream.await.map_err(|_| silent()).and_then(|stream| {
        let failed = |error| Fault::from_io(error, "open data connection").subject(address.to_string());
        stream.map_err(|error| failed(error).side(Side::Network))
    });
    match stream {
        Ok(stream) => Ok((stream, id)),
        // A server that refuses what was asked for closes the port, too: what it says tells more.
        Err(fault) => {
            let said = timeout(FAREWELL, remote.finish(id)).await;
            Err(said.ok().and_then(Result::err).unwrap_or(fault))
        }
    }
}

async fn read_all(stream: &mut DataStream, text: &mut Vec<u8>) -> Result<(), Fault> {
    while text.len() < MAX_LISTING {
        let more = timeout(PATIENCE, stream.read(text)).await;
        if !more.map_err(|_| Fault::new(FaultCode::TimedOut, "read listing").side(Side::Network))?? {
            return Ok(());
        }
    }
    Ok(())
}
