//! How long a silent peer of a long-lived connection is believed to be there, and how soon one goes on whose network was away.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use whimbrel_sys::socket;
use whimbrel_transport::tcp::LONGEST_RTO;

/// For clients and their servers: some wait for hours while others move their data.
pub const CONTROL: Duration = Duration::from_secs(60);

/// For a front and its data nodes: a host that died holds up transfers until it is missed.
pub const NODE: Duration = Duration::from_secs(15);

/// Sends small messages at once, without waiting to fill a segment, which costs a round trip, and what was lost as soon again
/// as on data channels; and probes a peer that has been silent for `silence` until it has missed a few probes a third of that
/// apart: then the connection fails.
pub fn set(socket: impl AsFd, silence: Duration) -> io::Result<()> {
    socket::set_nodelay(&socket, true)?;
    socket::set_rto_max(&socket, LONGEST_RTO)?;
    let socket = SockRef::from(&socket);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(silence).with_interval(silence / 3))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_silent_peer_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        set(&stream, NODE).expect("set");
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("asked") && stream.nodelay().expect("asked"));
        assert_eq!(socket.tcp_keepalive_time().expect("asked"), NODE);
        assert_eq!(socket.tcp_keepalive_interval().expect("asked"), NODE / 3);
        assert!(socket::rto_max(&stream).expect("asked").is_none_or(|longest| longest == LONGEST_RTO));
    }
}
