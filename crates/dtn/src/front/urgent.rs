//! A control connection over TCP whose urgent data belong to the command line.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A stream that delivers urgent bytes in their place and never stops short at them.
///
/// Clients send the Telnet signals before ABOR as urgent data (RFC 959 §4.1.3). A read ends at the urgent mark although
/// more bytes wait behind it; the runtime's own stream takes a short read for an empty socket, and would sleep on an
/// ABOR that has already come. So this one believes a socket to be empty only when it says so.
pub(super) struct UrgentStream(TcpStream);

impl UrgentStream {
    /// Takes the stream over; a system that cannot deliver urgent bytes in place loses them, nothing else.
    pub(super) fn new(stream: TcpStream) -> Self {
        if let Err(error) = socket2::SockRef::from(&stream).set_out_of_band_inline(true) {
            tracing::debug!(%error, "no SO_OOBINLINE");
        }
        Self(stream)
    }
}

impl AsyncRead for UrgentStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buf.initialize_unfilled()) {
                Ok(count) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for UrgentStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// The signals and the command of an ABOR as clients send them, all there before the first read.
    #[tokio::test]
    async fn what_waits_behind_the_urgent_mark_is_read_without_a_further_byte_from_the_client() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = UrgentStream::new(listener.accept().await.unwrap().0);
        let mut line = [0; 100];
        for _ in 0..2 {
            // The socket is known to be empty afterwards: what comes next raises one event, before the mark is met.
            client.write_all(b"NOOP\r\n").unwrap();
            assert_eq!(stream.read(&mut line).await.unwrap(), 6);
        }
        client.write_all(b"\xff\xf4\xff").unwrap();
        socket2::SockRef::from(&client).send_out_of_band(b"\xf2").unwrap();
        client.write_all(b"ABOR\r\n").unwrap();
        let mut got = [0; 10];
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read_exact(&mut got)).await;
        read.expect("all bytes have been sent").unwrap();
        assert_eq!(&got, b"\xff\xf4\xff\xf2ABOR\r\n");
    }
}
