//! The stream between a front and a data node on another host: TLS 1.3 with a key that both derive from the node secret.
//!
//! What it carries are files' names and users' credentials, so nobody on the way may read it; that both ends finish the
//! handshake is the proof that both know the secret.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::TrustFault;
use whimbrel_trust::tls::{ClientTls, Plain, ServerTls, TlsMachine};

use super::nodes::NodeSecret;
use crate::handshake::{Broken, shake};

const OP: &str = "join front and data node";
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes taken from either side at once.
const PIECE: usize = 64 << 10;

/// The front's end, which waits for a node that knows the secret.
///
/// Fails with `LoginFailed` if it does not, or as the connection does.
pub async fn admit_node<W>(wire: &mut W, secret: &NodeSecret) -> Result<TlsMachine, Fault>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let tls = ServerTls::agreed(&secret.key()).and_then(|server| TlsMachine::server(&server));
    meet(wire, tls.map_err(ours)?).await
}

/// The node's end. Fails as [`admit_node`] does.
pub async fn join_front<W>(wire: &mut W, secret: &NodeSecret) -> Result<TlsMachine, Fault>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    let tls = ClientTls::agreed(&secret.key()).and_then(|client| TlsMachine::client(&client, ""));
    meet(wire, tls.map_err(ours)?).await
}

async fn meet<W>(wire: &mut W, tls: TlsMachine) -> Result<TlsMachine, Fault>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    meet_within(HANDSHAKE_TIMEOUT, wire, tls).await
}

async fn meet_within<W>(limit: Duration, wire: &mut W, mut tls: TlsMachine) -> Result<TlsMachine, Fault>
where
    W: AsyncRead + AsyncWrite + Unpin,
{
    match tokio::time::timeout(limit, shake(wire, &mut tls)).await {
        Ok(Ok(())) => Ok(tls),
        Ok(Err(Broken::Wire(error))) => Err(lost(error)),
        Ok(Err(Broken::Refused(fault))) => {
            Err(refused(&format!("the other side does not know the node secret: {fault}")))
        }
        // Of a network or a host that is slow, which gets better, and not of the secret.
        Err(_) => Err(Fault::new(FaultCode::TimedOut, OP).side(Side::Peer).detail("no handshake in time")),
    }
}

/// Carries bytes between the wire and whoever speaks in clear behind it, until either of them ends.
pub async fn carry<W, P>(wire: W, clear: P, tls: TlsMachine) -> io::Result<()>
where
    W: AsyncRead + AsyncWrite,
    P: AsyncRead + AsyncWrite,
{
    let (mut from_wire, mut to_wire) = tokio::io::split(wire);
    let (mut from_clear, mut to_clear) = tokio::io::split(clear);
    let tls = Mutex::new(tls);
    let inwards = async {
        let (mut buffer, mut plain) = (vec![0; PIECE], Vec::new());
        loop {
            // The first bytes may have come with the last ones of the handshake.
            let open = opened(&tls, &mut plain)?;
            to_clear.write_all(&plain).await?;
            let count = if open { from_wire.read(&mut buffer).await? } else { 0 };
            if count == 0 {
                return Ok(());
            }
            with(&tls, |tls| tls.feed(&buffer[..count]));
        }
    };
    let outwards = async {
        let mut buffer = vec![0; PIECE];
        loop {
            let count = from_clear.read(&mut buffer).await?;
            to_wire.write_all(&sealed(&tls, &buffer[..count])?).await?;
            if count == 0 {
                return Ok(());
            }
        }
    };
    tokio::select! {
        ended = inwards => ended,
        ended = outwards => ended,
    }
}

/// The plain bytes that have come; whether more may come.
fn opened(tls: &Mutex<TlsMachine>, plain: &mut Vec<u8>) -> io::Result<bool> {
    plain.clear();
    with(tls, |tls| {
        loop {
            match tls.read(plain).map_err(io::Error::other)? {
                Plain::Bytes(_) => {}
                Plain::Nothing => return Ok(true),
                Plain::Closed => return Ok(false),
            }
        }
    })
}

/// Records for the wire; no bytes are a farewell.
fn sealed(tls: &Mutex<TlsMachine>, plain: &[u8]) -> io::Result<Vec<u8>> {
    with(tls, |tls| {
        match plain.is_empty() {
            true => tls.close(),
            false => tls.write(plain).map_err(io::Error::other)?,
        }
        Ok(tls.transmit().unwrap_or_default())
    })
}

fn with<T>(tls: &Mutex<TlsMachine>, act: impl FnOnce(&mut TlsMachine) -> T) -> T {
    act(&mut tls.lock().unwrap_or_else(PoisonError::into_inner))
}

fn lost(error: io::Error) -> Fault {
    Fault::from_io(error, OP).side(Side::Peer)
}

fn ours(fault: TrustFault) -> Fault {
    fault.into_fault(OP, Side::Us)
}

fn refused(detail: &str) -> Fault {
    Fault::new(FaultCode::LoginFailed, OP).side(Side::Peer).detail(detail)
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    const SECRET: [u8; 32] = [1; 32];

    async fn met(
        front: [u8; 32],
        node: [u8; 32],
    ) -> (Result<TlsMachine, Fault>, Result<TlsMachine, Fault>, [DuplexStream; 2]) {
        let (mut near, mut far) = duplex(1 << 20);
        let (front, node) = (NodeSecret::from_key(front), NodeSecret::from_key(node));
        let ends = tokio::join!(admit_node(&mut near, &front), join_front(&mut far, &node));
        (ends.0, ends.1, [near, far])
    }

    #[tokio::test]
    async fn only_those_who_share_the_secret_meet() {
        let (front, node, _) = met(SECRET, SECRET).await;
        assert!(front.is_ok() && node.is_ok());
        let (front, node, _) = met(SECRET, [2; 32]).await;
        for fault in [front.map(drop).unwrap_err(), node.map(drop).unwrap_err()] {
            assert_eq!(fault.code, FaultCode::LoginFailed, "{fault}");
            assert!(fault.detail.contains("does not know the node secret"), "{fault}");
        }
    }

    #[tokio::test]
    async fn who_speaks_no_tls_is_refused() {
        let (mut near, mut far) = duplex(1 << 20);
        far.write_all(&[0xff; 4096]).await.unwrap();
        let fault = admit_node(&mut near, &NodeSecret::from_key(SECRET)).await.map(drop).unwrap_err();
        assert_eq!(fault.code, FaultCode::LoginFailed, "{fault}");
    }

    #[tokio::test]
    async fn a_front_that_is_slow_to_answer_is_tried_again() {
        let (_front, mut far) = duplex(1 << 20);
        let tls = TlsMachine::client(&ClientTls::agreed(&NodeSecret::from_key(SECRET).key()).unwrap(), "").unwrap();
        let fault = meet_within(Duration::ZERO, &mut far, tls).await.map(drop).unwrap_err();
        assert_eq!(fault.code, FaultCode::TimedOut, "a node that takes this for a refusal ends: {fault}");
    }

    #[tokio::test]
    async fn bytes_travel_both_ways_at_once_hidden_and_the_end_is_passed_on() {
        let (front, node, [near, far]) = met(SECRET, SECRET).await;
        // More both ways than all buffers hold, so that neither end may wait for the other.
        let (mut ours, near_clear) = duplex(1000);
        let (mut theirs, far_clear) = duplex(1000);
        let carried = tokio::spawn(async move { carry(near, near_clear, front.unwrap()).await });
        let other = tokio::spawn(async move { carry(far, far_clear, node.unwrap()).await });
        let data: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
        async fn exchange(stream: &mut DuplexStream, data: &[u8]) {
            let (mut read, mut write) = tokio::io::split(stream);
            let mut got = vec![0; data.len()];
            let (sent, received) = tokio::join!(write.write_all(data), read.read_exact(&mut got));
            sent.and(received.map(drop)).unwrap();
            assert!(got == data);
        }
        tokio::join!(exchange(&mut ours, &data), exchange(&mut theirs, &data));
        drop(ours);
        assert_eq!(theirs.read(&mut [0; 1]).await.unwrap(), 0, "an end is an end");
        assert!(carried.await.unwrap().is_ok() && other.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn nothing_is_readable_on_the_way() {
        let (front, node, [near, far]) = met(SECRET, SECRET).await;
        let (mut ours, near_clear) = duplex(1 << 16);
        let carried = tokio::spawn(async move { carry(near, near_clear, front.unwrap()).await });
        ours.write_all(b"a private key").await.unwrap();
        let mut wire = far;
        let mut record = vec![0; 4096];
        let count = wire.read(&mut record).await.unwrap();
        assert!(!record[..count].windows(7).any(|bytes| bytes == b"private"));
        let mut tls = node.unwrap();
        tls.feed(&record[..count]);
        let mut plain = Vec::new();
        tls.read(&mut plain).unwrap();
        assert_eq!(plain, b"a private key");
        drop(ours);
        carried.await.unwrap().unwrap();
    }
}
