//! Bytes between a client over HTTPS and a data connection of this server.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::eblock::{EOD, EOF, Header, nonce_blocks};
use whimbrel_proto::op::{Mode, Op, OpId, ReceiveSpec, SendSpec};

use super::OP;
use super::sessions::Session;
use crate::client::data::{DataStream, open_at_ours};
use crate::client::pair::fresh_nonce;
use crate::client::remote::EndEvent;

/// Longest silence of either side.
const PATIENCE: Duration = Duration::from_secs(120);

/// Longest wait for the reason of a connection that broke.
const FAREWELL: Duration = Duration::from_secs(10);

/// Pieces that wait for a client who reads slowly.
const AHEAD: usize = 4;

/// A file on its way to a client.
pub(super) struct Outflow {
    session: Session,
    stream: DataStream,
    sending: OpId,
    /// The server has said that it sent all.
    confirmed: bool,
}

impl Outflow {
    /// Begins to read a part of a file.
    pub(super) async fn open(
        mut session: Session,
        path: &[u8],
        part: Range<u64>,
        encrypt: bool,
    ) -> Result<Self, Fault> {
        let length = Some(part.end - part.start);
        let op = Op::Send(SendSpec { offset: part.start, length, ..SendSpec::of(path) });
        let nonce = encrypt.then(fresh_nonce).transpose()?;
        let (stream, sending) = open_at_ours(&mut session.remote, op, Mode::Stream, nonce).await?;
        Ok(Self { session, stream, sending, confirmed: false })
    }

    /// The next bytes; `None` once all have come and the server has said so.
    async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            let piece = if self.confirmed {
                timeout(PATIENCE, self.stream.piece()).await
            } else {
                tokio::select! {
                    biased;
                    piece = timeout(PATIENCE, self.stream.piece()) => piece,
                    ended = self.session.remote.finish(self.sending) => {
                        ended?;
                        self.confirmed = true;
                        continue;
                    }
                }
            };
            let piece = piece.map_err(|_| silent())??;
            if piece.is_none() && !self.confirmed {
                self.session.remote.finish(self.sending).await?;
                self.confirmed = true;
            }
            return Ok(piece);
        }
    }

    /// The answer's body of `length` bytes. Its first bytes are waited for: until then a failure can still be told.
    pub(super) async fn into_body(mut self, length: u64) -> Result<Body, Fault> {
        let first = self.next().await?;
        let (sender, pieces) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            let sent = self.pass_on(first, length, &sender).await;
            match sent {
                Ok(true) => self.session.keep(),
                // The client has gone; so does the session, and with it the transfer.
                Ok(false) => {}
                Err(fault) => {
                    tracing::warn!(%fault, "an answer over HTTPS is cut short");
                    // Whoever reads sees a connection that breaks, and no end of the file.
                    let _gone = sender.send(Err(io::Error::other(fault.to_string()))).await;
                }
            }
        });
        Ok(Body::new(Pieces { pieces, left: length }))
    }

    /// Hands on all bytes, the last ones only when the server has said that they are all; false when nobody takes them.
    async fn pass_on(
        &mut self,
        first: Option<Bytes>,
        length: u64,
        sender: &mpsc::Sender<io::Result<Bytes>>,
    ) -> Result<bool, Fault> {
        let (mut held, mut count) = (first, 0);
        while let Some(piece) = held {
            count += piece.len() as u64;
            if count > length {
                return Err(changed());
            }
            held = self.next().await?;
            if held.is_none() && count < length {
                return Err(changed());
            }
            if sender.send(Ok(piece)).await.is_err() {
                return Ok(false);
            }
        }
        if count < length { Err(changed()) } else { Ok(true) }
    }
}

fn changed() -> Fault {
    Fault::new(FaultCode::SourceChanged, OP).side(Side::Source)
}

fn silent() -> Fault {
    Fault::new(FaultCode::Stalled, OP).side(Side::Network)
}

/// A body of a known length from a channel.
struct Pieces {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    left: u64,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.pieces.poll_recv(context).map(|piece| {
            piece.map(|piece| {
                piece.map(|bytes| {
                    self.left = self.left.saturating_sub(bytes.len() as u64);
                    Frame::data(bytes)
                })
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Why a file was not taken.
pub(super) enum Broken {
    /// The client stopped, or sent too slowly.
    Client(&'static str),
    /// The server failed.
    Server(Fault),
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Self::Server(fault)
    }
}

/// Stores a request's body as a whole file. It has its name only when all of it has come: a stream in blocks has an end of its own,
/// so that a connection that breaks is none (GFD.20 §3.4).
pub(super) async fn store(
    mut session: Session,
    path: &[u8],
    size: Option<u64>,
    mut body: Body,
    encrypt: bool,
) -> Result<(), Broken> {
    let op = Op::Receive(ReceiveSpec { expected_size: size, ..ReceiveSpec::of(path) });
    // In blocks, a nonce also says whose connection it is.
    let nonce = encrypt.then(fresh_nonce).transpose()?;
    let (mut stream, storing) = open_at_ours(&mut session.remote, op, Mode::Extended, nonce).await?;
    // A refusal comes before the file is asked for: who waits with it (RFC 9110 §10.1.1) need not send it at all.
    begun(&mut session, storing).await?;
    tokio::select! {
        sent = pump(&mut stream, nonce.as_ref(), &mut body, size) => match sent {
            Ok(()) => {}
            // Why it takes no more, the server says itself.
            Err(Broken::Server(fault)) => {
                let said = timeout(FAREWELL, session.remote.finish(storing)).await;
                return Err(said.ok().and_then(Result::err).unwrap_or(fault).into());
            }
            Err(broken) => return Err(broken),
        },
        // It cannot be complete before it was sent.
        refused = session.remote.finish(storing) => {
            let early = || Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Us);
            return Err(refused.err().unwrap_or_else(early).into());
        }
    }
    session.remote.finish(storing).await?;
    drop(stream);
    session.keep();
    Ok(())
}

/// Waits until the server takes what comes, or says why not.
async fn begun(session: &mut Session, storing: OpId) -> Result<(), Fault> {
    loop {
        match session.remote.event_in_time().await? {
            (op, EndEvent::Notice(_)) if op == storing => return Ok(()),
            (op, EndEvent::Done(result)) if op == storing => {
                result?;
                return Err(Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Us));
            }
            _ => {}
        }
    }
}

async fn pump(
    stream: &mut DataStream,
    nonce: Option<&[u8; 16]>,
    body: &mut Body,
    size: Option<u64>,
) -> Result<(), Broken> {
    for block in nonce.iter().flat_map(|nonce| nonce_blocks(nonce)) {
        stream.write(&block.encode()).await?;
    }
    let mut offset = 0;
    loop {
        let frame = timeout(PATIENCE, body.frame()).await.map_err(|_| Broken::Client("the file came too slowly"))?;
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(|_| Broken::Client("the file was not sent whole"))?.into_data() else { continue };
        if data.is_empty() {
            continue;
        }
        let block = Header::data(offset, data.len() as u64).encode();
        let written = timeout(PATIENCE, async {
            stream.write(&block).await?;
            stream.write(&data).await
        });
        written.await.map_err(|_| silent())??;
        offset += data.len() as u64;
    }
    if size.is_some_and(|size| size != offset) {
        return Err(Broken::Client("the file was not sent whole"));
    }
    let end = Header { descriptor: EOF | EOD, count: 0, offset: 1 };
    Ok(stream.write(&end.encode()).await?)
}
