//! Connections that go on as something else than HTTP (RFC 9110 §7.8).

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream in both directions.
trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Duplex for S {}

/// What a connection has become: bytes in both directions.
pub struct Line(Pin<Box<dyn Duplex>>);

impl Line {
    /// A stream as it is.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }

    /// One end of a socket pair, in non-blocking mode, and what carries bytes between its other end and this connection until both
    /// have ended. Must be called within a runtime.
    ///
    /// # Errors
    /// No socket pair can be made.
    pub fn paired(mut self) -> io::Result<(UnixStream, impl Future<Output = io::Result<()>> + Send)> {
        let (theirs, ours) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        ours.set_nonblocking(true)?;
        let mut ours = tokio::net::UnixStream::from_std(ours)?;
        Ok((theirs, async move { tokio::io::copy_bidirectional(&mut ours, &mut self).await.map(drop) }))
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line(..)")
    }
}

impl From<Upgraded> for Line {
    fn from(upgraded: Upgraded) -> Self {
        Self::new(TokioIo::new(upgraded))
    }
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(context, buf)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(context)
    }
}

/// A request's offer to go on as something else.
#[derive(Debug, Clone)]
pub struct Offer {
    protocol: String,
    ready: OnUpgrade,
}

impl Offer {
    /// That of a request; `None`: it makes none.
    pub fn of(parts: &Parts) -> Option<Self> {
        let ready = parts.extensions.get::<OnUpgrade>()?.clone();
        let protocol = parts.headers.get(UPGRADE)?.to_str().ok()?.to_owned();
        Some(Self { protocol, ready })
    }

    /// Whether it is for this protocol.
    pub fn is_for(&self, protocol: &str) -> bool {
        self.protocol.eq_ignore_ascii_case(protocol)
    }

    /// What the connection becomes, once the request is answered by [`switching`].
    ///
    /// # Errors
    /// The client is gone, or was answered otherwise.
    pub async fn line(self) -> io::Result<Line> {
        self.ready.await.map(Line::from).map_err(io::Error::other)
    }
}

/// The answer that takes an offer up (101).
pub fn switching(protocol: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::Request;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::watch;

    use super::*;
    use crate::{Limits, Listen, Security, Server};

    async fn echo(request: Request) -> Response<Body> {
        let (parts, _) = request.into_parts();
        let Some(offer) = Offer::of(&parts).filter(|offer| offer.is_for("echo")) else {
            let mut refused = Response::new(Body::from("no"));
            *refused.status_mut() = StatusCode::UPGRADE_REQUIRED;
            return refused;
        };
        tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(offer.line().await.unwrap());
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        switching("echo")
    }

    #[tokio::test]
    async fn a_connection_goes_on_as_what_was_offered_and_refusals_are_answers() {
        let listen =
            Listen { address: ([127, 0, 0, 1], 0).into(), security: Security::Loopback, limits: Limits::default() };
        let server = Server::bind(listen).await.unwrap();
        let url = format!("http://{}", server.address());
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(server.serve(Router::new().route("/x", get(echo)), stopped));
        let client = crate::client::tests::client(&url);
        let mut line = client.upgrade("/x", None, "echo").await.unwrap().unwrap();
        // The server stops taking requests; what has become of others is none of its business.
        stop.send_replace(true);
        line.write_all(b"over there").await.unwrap();
        line.shutdown().await.unwrap();
        let mut heard = String::new();
        line.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "over there");
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_refused_says_so() {
        let listen =
            Listen { address: ([127, 0, 0, 1], 0).into(), security: Security::Loopback, limits: Limits::default() };
        let server = Server::bind(listen).await.unwrap();
        let url = format!("http://{}", server.address());
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(server.serve(Router::new().route("/x", get(echo)), stopped));
        let answer = crate::client::tests::client(&url).upgrade("/x", None, "other").await.unwrap().unwrap_err();
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::UPGRADE_REQUIRED, &b"no"[..]));
    }
}
