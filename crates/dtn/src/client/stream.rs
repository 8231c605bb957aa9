//! The bytes below a control connection: a TCP connection, one that the server made, or the input and output of a program.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use whimbrel_sys::tcp_info::tcp_info;

use super::ssh::Ssh;
use crate::keepalive;

/// One control connection's bytes.
#[derive(Debug)]
pub(super) enum Stream {
    /// To the server.
    Tcp(TcpStream),
    /// One that the server made, by way of somebody who kept it.
    Met(UnixStream),
    /// To ssh, which ends with it.
    Ssh(UnixStream, Box<Ssh>),
}

/// A direction that something can be read from.
pub(super) type Reader<'a> = Box<dyn AsyncRead + Send + Unpin + 'a>;

/// A direction that something can be written to.
pub(super) type Writer<'a> = Box<dyn AsyncWrite + Send + Unpin + 'a>;

impl Stream {
    /// A connected socket, with the addresses of server and client.
    pub(super) fn tcp(stream: TcpStream) -> io::Result<(Self, SocketAddr, SocketAddr)> {
        // Flights of commands are complete when they are written. Firewalls forget who is silent, and a server may be gone while
        // its answer is awaited.
        keepalive::set(&stream, keepalive::CONTROL)?;
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        Ok((Self::Tcp(stream), peer, local))
    }

    /// Both directions at once.
    pub(super) fn split(&mut self) -> (Reader<'_>, Writer<'_>) {
        match self {
            Self::Tcp(stream) => {
                let (reader, writer) = stream.split();
                (Box::new(reader), Box::new(writer))
            }
            Self::Met(stream) | Self::Ssh(stream, _) => {
                let (reader, writer) = stream.split();
                (Box::new(reader), Box::new(writer))
            }
        }
    }

    /// Writes what can be written without waiting.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Met(stream) | Self::Ssh(stream, _) => stream.try_write(bytes),
        }
    }

    /// The shortest round trip that the kernel has seen, the handshake's included; `None` where it does not say.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let Self::Tcp(stream) = self else { return None };
        let info = tcp_info(stream).ok()?;
        [info.min_rtt, info.rtt].into_iter().find(|rtt| !rtt.is_zero())
    }

    /// How bytes are protected; `None`: they are not.
    pub(super) fn protection(&self) -> Option<String> {
        match self {
            Self::Tcp(_) | Self::Met(_) => None,
            Self::Ssh(_, ssh) => Some(format!("ssh to {}, which has checked the host's key", ssh.host())),
        }
    }

    /// The program below, if there is one.
    pub(super) fn ssh(&mut self) -> Option<&mut Ssh> {
        match self {
            Self::Tcp(_) | Self::Met(_) => None,
            Self::Ssh(_, ssh) => Some(ssh),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Met(stream) | Self::Ssh(stream, _) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Met(stream) | Self::Ssh(stream, _) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Met(stream) | Self::Ssh(stream, _) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Met(stream) | Self::Ssh(stream, _) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_is_gone_is_missed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let connected = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
        let (Stream::Tcp(stream), ..) = Stream::tcp(connected).expect("a stream") else { panic!("of another kind") };
        assert_eq!(SockRef::from(&stream).tcp_keepalive_time().expect("asked"), keepalive::CONTROL);
        assert!(SockRef::from(&stream).keepalive().expect("asked"));
    }
}
