//! Which addresses are called for a client that shows a nonce, over data connections in clear.
//!
//! The nonce proves to whoever is called that the right one calls, and nothing to us: an address that only says that it is a data transfer node may be any
//! service, and what it is sent is the client's choice. So such connections lead to nothing that the client could not reach itself: not to this host, and
//! not from a server of the whole network into the networks behind it. Connections inside TLS with a key from the nonce send nothing to who lacks it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

use super::message::DataPeers;

/// What is known of the two ends of the control connection, and of this one's data connections.
#[derive(Debug)]
pub struct Reach<'a> {
    /// Of data connections that prove nothing.
    pub peers: &'a DataPeers,
    /// The client; `None`: standard input.
    pub client: Option<IpAddr>,
    /// Addresses of this host that are known without asking.
    pub own: &'a [IpAddr],
    /// Where logins of the same server wait.
    pub listening: &'a [SocketAddr],
    /// Tells whether an address is this host's.
    pub is_here: fn(IpAddr) -> bool,
}

impl Reach<'_> {
    /// Why an address that is not admitted anyway is not called with a nonce in clear; `None`: it is.
    pub fn refusal(&self, target: SocketAddr) -> Option<&'static str> {
        let address = target.ip().to_canonical();
        if self.listening.contains(&target) {
            return None;
        }
        match self.peers {
            DataPeers::Anyone => None,
            DataPeers::ControlPeerAnd(_) => Some(
                "the address is neither that of the control connection nor one that third parties may have (allow_third_party), and data are not encrypted",
            ),
            DataPeers::ControlPeer if self.has_client() => None,
            DataPeers::ControlPeer if is_near(address) || self.has(address) => {
                Some("the address is this host's, and data are not encrypted")
            }
            DataPeers::ControlPeer if is_private(address) && self.is_public() => {
                Some("the address is a private network's and this server's is not, and data are not encrypted")
            }
            DataPeers::ControlPeer => None,
        }
    }

    /// Whether the client is on this host, all of which it can reach itself.
    fn has_client(&self) -> bool {
        self.client.is_none_or(|client| client.is_loopback() || self.has(client))
    }

    /// Whether this server is known to be one of the whole network, and of no private one.
    fn is_public(&self) -> bool {
        !self.own.is_empty() && !self.own.iter().copied().any(is_private)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.own.contains(&address) || (self.is_here)(address)
    }
}

/// Addresses that mean this host, or whatever is on the same wire.
fn is_near(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_unspecified() || v4.is_link_local() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local(),
    }
}

/// Addresses that mean something within a site or a provider only (RFC 1918, RFC 6598, RFC 4193), or on this host.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || matches!(v4.octets(), [100, 64..=127, ..]),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_loopback(),
    }
}

/// Whether this host has the address: only then it can be bound, unless the host may bind any (`ip_nonlocal_bind`), where nothing can be told so.
pub fn is_here(address: IpAddr) -> bool {
    let strange: IpAddr = match address {
        // For documentation (RFC 5737, RFC 3849): nobody's.
        IpAddr::V4(_) => Ipv4Addr::new(203, 0, 113, 254).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1).into(),
    };
    can_be_bound(address) && !can_be_bound(strange)
}

fn can_be_bound(address: IpAddr) -> bool {
    let socket = Socket::new(Domain::for_address((address, 0).into()), Type::STREAM, None);
    socket.and_then(|socket| socket.bind(&SocketAddr::new(address, 0).into())).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(ip(text), 5000)
    }

    fn reach<'a>(peers: &'a DataPeers, client: &str, own: &'a [IpAddr]) -> Reach<'a> {
        Reach { peers, client: Some(ip(client)), own, listening: &[], is_here: |address| address == ip("198.51.100.2") }
    }

    #[test]
    fn a_client_from_elsewhere_reaches_other_nodes_and_nothing_behind_or_on_this_one() {
        let own = [ip("198.51.100.1")];
        let reach = reach(&DataPeers::ControlPeer, "192.0.2.9", &own);
        for open in ["203.0.113.7", "2a00::7", "11.0.0.1", "100.128.0.1"] {
            assert_eq!(reach.refusal(at(open)), None, "{open}");
        }
        let here = [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fe80::1",
        ];
        let own = ["198.51.100.1", "198.51.100.2", "::ffff:198.51.100.2"];
        let behind = ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd00::1"];
        for closed in here.iter().chain(&own).chain(&behind) {
            assert!(reach.refusal(at(closed)).is_some(), "{closed}");
        }
    }

    #[test]
    fn own_logins_wait_on_this_host_and_a_site_is_reached_from_within() {
        let own = [ip("198.51.100.1")];
        let waits = [at("198.51.100.1")];
        let from_elsewhere = reach(&DataPeers::ControlPeer, "192.0.2.9", &own);
        let known = Reach { listening: &waits, ..from_elsewhere };
        assert_eq!(known.refusal(waits[0]), None);
        assert!(known.refusal(SocketAddr::new(ip("198.51.100.1"), 5001)).is_some(), "another port");
        // Who is on this host reaches it anyway.
        for client in ["127.0.0.1", "198.51.100.1", "198.51.100.2"] {
            assert_eq!(reach(&DataPeers::ControlPeer, client, &own).refusal(at("127.0.0.1")), None);
        }
        let private = [ip("10.0.0.7")];
        let site = reach(&DataPeers::ControlPeer, "192.0.2.9", &private);
        assert_eq!(site.refusal(at("10.0.0.8")), None);
        assert!(site.refusal(at("10.0.0.7")).is_some() && site.refusal(at("127.0.0.1")).is_some());
        // A server that makes its control connections itself does not know where it stands; mostly behind address translation.
        let outbound = reach(&DataPeers::ControlPeer, "100::", &[]);
        assert_eq!(outbound.refusal(at("10.0.0.8")), None);
        assert!(outbound.refusal(at("127.0.0.1")).is_some());
    }

    #[test]
    fn networks_that_the_administrator_names_are_all_there_is() {
        let named = DataPeers::ControlPeerAnd("192.0.2.0/24".parse().expect("a network"));
        assert!(reach(&named, "127.0.0.1", &[]).refusal(at("203.0.113.7")).is_some());
        assert_eq!(reach(&DataPeers::Anyone, "192.0.2.9", &[]).refusal(at("127.0.0.1")), None);
    }

    #[test]
    fn this_host_knows_its_addresses() {
        assert!(is_here(ip("127.0.0.1")) && is_here(ip("127.3.4.5")) && is_here(ip("0.0.0.0")));
        assert!(!is_here(ip("203.0.113.254")) && !is_here(ip("203.0.113.253")));
    }
}
