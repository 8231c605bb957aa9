//! One control connection on standard input and output, as a remote shell starts it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, Stdin, Stdout};
use tokio::sync::watch;

use super::connection::{self, Beginning, Ends};
use super::server::Server;

/// Serves the one connection until it ends.
pub async fn serve(server: Arc<Server>, drain: watch::Receiver<bool>) {
    let stream = Stdio { input: tokio::io::stdin(), output: tokio::io::stdout() };
    connection::serve(stream, ends_of_remote_shell(), Beginning::Clear, server, drain).await;
}

/// `SSH_CONNECTION` is "client-address client-port server-address server-port"; the server address is
/// where data connections can reach this host.
fn ends_of_remote_shell() -> Ends {
    std::env::var("SSH_CONNECTION").ok().and_then(|text| parse_ends(&text)).unwrap_or_default()
}

fn parse_ends(text: &str) -> Option<Ends> {
    let mut fields = text.split(' ');
    let mut address = || Some(SocketAddr::new(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?));
    Some(Ends { peer: address(), local: address(), visitor: None })
}

struct Stdio {
    input: Stdin,
    output: Stdout,
}

impl AsyncRead for Stdio {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stdio {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.output).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remote_shell_tells_both_addresses() {
        let ends = parse_ends("2001:db8::1 5000 192.0.2.7 22").unwrap();
        assert_eq!(ends.peer, Some("[2001:db8::1]:5000".parse().unwrap()));
        assert_eq!(ends.local, Some("192.0.2.7:22".parse().unwrap()));
    }
}
