//! Connections between near ends are not paced.
//!
//! BBR sends by a timer of the kernel, a segment at a time. Within a host or a rack these timers are most of what a byte
//! costs (`docs/design/data-path.md`), and nothing is gained by them: with 250 µs a loss is made good before it matters
//! (Mathis et al. 1997: of one in a thousand lost, segments of 1448 bytes still leave 1.8 Gbit/s to a channel).

use std::os::fd::AsFd;
use std::time::Duration;

use whimbrel_engine::auto::{PACED, UNPACED};
use whimbrel_sys::socket;

use super::TcpChannel;

/// Round trips below this are near.
const NEAR: Duration = Duration::from_micros(250);

/// The system's congestion control, put off until the handshake has told how far the peer is.
///
/// A connection that was made with one that paces goes on pacing whatever it gets afterwards (Linux keeps
/// `sk_pacing_status`), so it is made without.
#[derive(Debug, Clone, Default)]
pub(super) struct PutOff {
    usual: Option<String>,
}

impl PutOff {
    /// Before connect or listen, where nobody has asked for a congestion control.
    pub(super) fn before(fd: impl AsFd) -> Self {
        let fd = fd.as_fd();
        let paced = socket::congestion(fd).ok().filter(|name| name == PACED);
        // What the kernel lets nobody choose is not taken: the system's is slower, and right.
        let taken = || UNPACED.into_iter().any(|name| socket::set_congestion(fd, name).is_ok());
        Self { usual: paced.filter(|_| taken()) }
    }

    /// Once the connection stands: a far one gets what it would have had.
    pub(super) fn settle(&self, channel: &TcpChannel) {
        let Some(usual) = self.usual.as_deref().filter(|_| !channel.is_near()) else {
            return;
        };
        // The system's default is allowed to everybody.
        if let Err(error) = socket::set_congestion(&channel.socket.stream, usual) {
            tracing::warn!(%error, peer = %channel.peer, "no congestion control {usual} for a data connection");
        }
    }
}

impl TcpChannel {
    fn is_near(&self) -> bool {
        // A handshake within a busy host may take longer than one in a quiet rack; its addresses tell.
        if self.peer.ip() == self.local.ip() {
            return true;
        }
        let rtt = self.tcp_info().rtt;
        rtt > Duration::ZERO && rtt < NEAR
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// A connection within this host from a socket that `usual` was the system's for, and what was put off; `None` where
    /// the kernel does not have it.
    fn connected(usual: &str) -> Option<(TcpChannel, PutOff)> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
        socket::set_congestion(&socket, usual).ok()?;
        let put_off = PutOff::before(&socket);
        socket.connect(&listener.local_addr().expect("address").into()).expect("connect");
        Some((TcpChannel::new(socket.into()).expect("channel"), put_off))
    }

    fn in_force(channel: &TcpChannel) -> String {
        socket::congestion(&channel.socket.stream).expect("Linux tells")
    }

    #[test]
    fn what_does_not_pace_stays() {
        let (channel, put_off) = connected("reno").expect("every kernel has it");
        put_off.settle(&channel);
        assert_eq!((in_force(&channel).as_str(), put_off.usual), ("reno", None));
    }

    #[test]
    fn what_paces_is_for_far_peers() {
        let Some((mut channel, put_off)) = connected("bbr") else {
            eprintln!("this kernel has no congestion control that paces: nothing to see");
            return;
        };
        put_off.settle(&channel);
        assert!(UNPACED.contains(&in_force(&channel).as_str()), "{}", in_force(&channel));
        channel.peer = "192.0.2.1:1".parse().expect("address");
        let far = channel.tcp_info().rtt >= NEAR;
        put_off.settle(&channel);
        // The round trips are those of this host, but for a busy moment.
        assert_eq!(in_force(&channel) == "bbr", far);
    }
}
