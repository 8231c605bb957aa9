//! Small data connections of the client itself: listings of servers that cannot send them on the
//! control connection.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{DataParams, ListSpec, Op, Outcome};

use super::end::reachable;
use super::remote::Remote;

/// Longest wait for a data connection, and longest silence on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest listing taken this way, bytes.
const MAX_LISTING: u64 = 1 << 30;

/// Fetches a listing in stream mode over a passive data connection (MLSD, LIST).
pub async fn fetch_listing(remote: &mut Remote, spec: ListSpec) -> Result<Vec<u8>, Fault> {
    let passive = Op::Passive { striped: false, family: None, params: DataParams::default() };
    let Outcome::Listening(addresses) = remote.run(passive).await? else {
        return Err(Fault::new(FaultCode::PeerMisbehaved, "list").side(Side::Peer));
    };
    let subject = String::from_utf8_lossy(&spec.path).into_owned();
    let (server, _) = remote.addresses();
    let address = addresses.first().copied().ok_or_else(|| Fault::new(FaultCode::PeerMisbehaved, "list"))?;
    let address = reachable(address, server.ip());
    let stream = timeout(PATIENCE, TcpStream::connect(address));
    let listing = remote.submit(Op::SendListing(spec))?;
    remote.flush().await?;
    let silent =
        || Fault::new(FaultCode::TimedOut, "open data connection").subject(address.to_string()).side(Side::Network);
    let mut stream = stream.await.map_err(|_| silent())?.map_err(|error| {
        Fault::from_io(error, "open data connection").subject(address.to_string()).side(Side::Network)
    })?;
    let mut text = Vec::new();
    tokio::select! {
        read = read_all(&mut stream, &mut text) => {
            read.map_err(|fault| fault.subject(subject))?;
            drop(stream);
            remote.finish(listing).await?;
        }
        refused = remote.finish(listing) => {
            refused?;
            read_all(&mut stream, &mut text).await.map_err(|fault| fault.subject(subject))?;
        }
    }
    Ok(text)
}

async fn read_all(stream: &mut TcpStream, text: &mut Vec<u8>) -> Result<(), Fault> {
    let mut limited = stream.take(MAX_LISTING);
    loop {
        let count = timeout(PATIENCE, limited.read_buf(text))
            .await
            .map_err(|_| Fault::new(FaultCode::TimedOut, "read listing").side(Side::Network))?
            .map_err(|error| Fault::from_io(error, "read listing").side(Side::Network))?;
        if count == 0 {
            return Ok(());
        }
    }
}
