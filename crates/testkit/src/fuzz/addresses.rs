//! Addresses and places.

use std::net::SocketAddr;

use whimbrel_proto::hostport::{self as wire, AddressError, Passive};
use whimbrel_proto::relay::{HELLO_BYTES, Hello, Part};
use whimbrel_proto::reply::Reply;
use whimbrel_proto::url::{self as places, Location, Remote};

/// Addresses in all their forms: what was read is written and read as the same.
pub fn hostport(data: &[u8]) {
    for text in data.split(|&b| b == b'\n') {
        for address in [wire::parse_port(text), wire::parse_eprt(text), wire::parse_either(text)].into_iter().flatten()
        {
            check_address(address);
        }
        if let Ok(list) = wire::parse_spor(text) {
            assert!((1..=wire::MAX_ADDRESSES).contains(&list.len()));
            let again: Vec<_> = list.iter().map(|&address| wire::format_either(address, false)).collect();
            assert_eq!(wire::parse_spor(again.join(" ").as_bytes()), Ok(list));
        }
        for reply in [227, 229, 150].map(|code| Reply { code, lines: vec![text.to_vec()] }) {
            check_reply(&reply);
        }
        if let Ok(family) = wire::parse_family(text) {
            assert_eq!(wire::family_number(family).to_string().as_bytes(), text);
        }
    }
    if let Some(first) = data.first_chunk() {
        check_hello(first);
    }
    let first = b"Entering Striped Passive Mode.".to_vec();
    let middle = data.split(|&b| b == b'\n').map(<[u8]>::to_vec);
    check_reply(&Reply { code: 229, lines: std::iter::once(first).chain(middle).chain([b"End".to_vec()]).collect() });
}

/// The first bytes of a connection to a relay are read as they were written, or are somebody else's.
fn check_hello(bytes: &[u8; HELLO_BYTES]) {
    match Hello::decode(bytes) {
        Some(hello) => {
            assert_eq!(hello.encode(), *bytes);
            let turned = Hello { part: hello.part.other(), ..hello };
            assert_eq!(Hello::decode(&turned.encode()), Some(turned));
            assert!(turned != hello && turned.part.other() == hello.part && turned.part.word() != hello.part.word());
        }
        None => assert!(Part::ALL.iter().all(|&part| Hello { token: [7; 32], part }.encode() != *bytes)),
    }
}

/// What a passive reply tells is told again in the reply made of it.
pub(super) fn check_reply(reply: &Reply) {
    match wire::parse_passive(reply) {
        Ok(Passive::Addresses(addresses)) => {
            assert!((1..=wire::MAX_ADDRESSES).contains(&addresses.len()));
            let extended = addresses.iter().all(|address| address.port() != 0);
            let again = wire::spas_reply(229, &addresses, extended);
            assert_eq!(wire::parse_passive(&again), Ok(Passive::Addresses(addresses)));
        }
        Ok(Passive::Port(port)) => {
            assert_ne!(port, 0);
            assert_eq!(wire::parse_passive(&wire::epsv_reply(229, port)), Ok(Passive::Port(port)));
        }
        Err(error) => assert_eq!(error == AddressError::Code(reply.code), reply.code == 150),
    }
}

fn check_address(address: SocketAddr) {
    assert_eq!(address.ip(), address.ip().to_canonical(), "a mapped IPv4 address is an IPv4 address");
    match wire::format_port(address) {
        Some(text) => {
            assert_eq!(wire::parse_port(text.as_bytes()), Ok(address));
            let reply = wire::pasv_reply(227, address).expect("an IPv4 address has a 227");
            assert_eq!(wire::parse_passive(&reply), Ok(Passive::Addresses(vec![address])));
        }
        None => assert!(address.is_ipv6() && wire::pasv_reply(227, address).is_none()),
    }
    // Port 0 is only expressible in the old form.
    if address.port() != 0 {
        assert_eq!(wire::parse_eprt(wire::format_eprt(address).as_bytes()), Ok(address));
        assert_eq!(wire::parse_either(wire::format_either(address, true).as_bytes()), Ok(address));
    }
}

/// Places: no path that cannot be sent, no password shown, and plain ones are shown as they are read.
pub fn url(data: &[u8]) {
    for text in data.split(|&b| b == 0xFE) {
        match places::parse(text) {
            Ok(Location::Local(path)) => assert!(!path.contains(&0)),
            Ok(Location::Remote(remote)) => check_remote(&remote),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn check_remote(remote: &Remote) {
    assert!(!remote.hosts.is_empty());
    assert!(!remote.path.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')), "{remote:?}");
    for host in &remote.hosts {
        assert!(!host.name.is_empty() && !host.name.starts_with('-') && host.port != Some(0), "{remote:?}");
    }
    assert!(remote.user.as_deref() != Some(""));
    let shown = remote.to_string();
    let without_password = Remote { password: None, ..remote.clone() };
    assert_eq!(shown, without_password.to_string());
    assert_eq!(format!("{remote:?}"), format!("Remote({shown})"));
    if is_plain(remote) {
        assert_eq!(places::parse(shown.as_bytes()), Ok(Location::Remote(without_password)), "{shown}");
    }
}

/// True if no part needs an escape.
fn is_plain(remote: &Remote) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-".contains(b);
    let user = remote.user.as_deref().unwrap_or("u");
    let at_home = remote.scheme.is_some() && !remote.path.starts_with(b"/");
    remote.path.iter().all(plain)
        && user.bytes().all(|b| b.is_ascii_alphanumeric())
        && !(at_home && remote.path.is_empty())
}
