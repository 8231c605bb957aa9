//! What replies say: addresses, facts, checksums, markers.

use std::net::SocketAddr;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::fact;
use whimbrel_proto::holes;
use whimbrel_proto::hostport::{self, Passive};
use whimbrel_proto::leaf::{self, LeafError};
use whimbrel_proto::marker::Marker;
use whimbrel_proto::op::{Notice, Outcome};
use whimbrel_proto::pack;
use whimbrel_proto::ranges;
use whimbrel_proto::reply::Reply;
use whimbrel_proto::timeval::Timestamp;

use super::Answer;
use crate::client::reply;

/// The outcome a successful final reply stands for.
pub(super) fn outcome(
    kind: Answer,
    reply: &Reply,
    peer: SocketAddr,
    name: &str,
    subject: &[u8],
) -> Result<Outcome, Fault> {
    let odd = || {
        Fault::new(FaultCode::PeerMisbehaved, name).on_path(subject).side(Side::Peer).detail(format!(
            "cannot be understood: {} {}",
            reply.code,
            reply::text(reply)
        ))
    };
    match kind {
        Answer::Plain | Answer::Lines | Answer::Policy => Some(Outcome::Done),
        Answer::Working => Some(working(reply).map_or(Outcome::Done, Outcome::Directory)),
        Answer::Directory => Some(Outcome::Directory(subject.to_vec())),
        // The amount is known from markers and listings, never from this reply.
        Answer::Transfer => leaf::from_reply(reply).ok().map(|leaves| {
            let read_from = leaf::read_from_reply(reply);
            Outcome::Transferred { bytes: 0, leaves, read_from }
        }),
        Answer::Chunked => chunked(reply).ok(),
        Answer::Packed(count) => pack::fates_from_reply(reply, count).ok().map(Outcome::Packed),
        Answer::Extents => holes::extents_from_reply(reply).ok().map(|(holes, data)| Outcome::Extents { holes, data }),
        Answer::Probed => Some(Outcome::Probed(fact::from_reply(reply))),
        Answer::Passive => passive(reply, peer).map(Outcome::Listening),
        Answer::Facts => reply.middle_lines().first().cloned().map(Outcome::Line),
        Answer::Size => number(reply).map(Outcome::Size),
        Answer::Modified => {
            Timestamp::parse(reply.first_text().trim_ascii()).ok().map(|t| Outcome::Modified(t.secs, t.nanos))
        }
        Answer::Checksum => checksum(reply).map(Outcome::Checksum),
    }
    .ok_or_else(odd)
}

fn chunked(reply: &Reply) -> Result<Outcome, LeafError> {
    let (session, verified) = leaf::opened_from_reply(reply)?;
    let (holes, storage) = (holes::from_reply(reply)?, holes::storage_from_reply(reply)?);
    let discarded = holes::discarded_from_reply(reply)?;
    Ok(Outcome::Chunked { session, verified, holes, storage, discarded })
}

/// The name between quotes, of which two stand for one (RFC 959 appendix II).
fn working(reply: &Reply) -> Option<Vec<u8>> {
    let text = reply.first_text();
    let quote = |text: &[u8]| text.iter().position(|&byte| byte == b'"');
    let mut rest = &text[quote(text)? + 1..];
    let mut name = Vec::new();
    loop {
        let end = quote(rest)?;
        name.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(b"\"") {
            Some(more) => rest = more,
            None => return Some(name).filter(|name| !name.is_empty()),
        }
        name.push(b'"');
    }
}

fn number(reply: &Reply) -> Option<u64> {
    ranges::parse_u64(reply.first_text().trim_ascii()).ok()
}

fn checksum(reply: &Reply) -> Option<String> {
    let text = std::str::from_utf8(reply.first_text()).ok()?.trim().to_ascii_lowercase();
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(text)
}

fn passive(reply: &Reply, peer: SocketAddr) -> Option<Vec<SocketAddr>> {
    Some(match hostport::parse_passive(reply).ok()? {
        Passive::Addresses(addresses) => addresses,
        Passive::Port(port) => vec![SocketAddr::new(peer.ip().to_canonical(), port)],
    })
}

/// The notice a preliminary reply stands for; unknown ones only show that the server lives.
pub(super) fn opened(reply: &Reply) -> Option<Notice> {
    matches!(reply.code, 125 | 150).then(|| Notice::Opened { reused: reply.code == 125, unique_name: None })
}

/// The notice a marker stands for.
pub(super) fn marker(marker: Marker) -> Option<Notice> {
    Some(match marker {
        Marker::Restart(ranges) => Notice::Ranges(ranges),
        Marker::Perf(perf) => Notice::Performance {
            stripe: u16::try_from(perf.stripe).ok()?,
            stripes: u16::try_from(perf.stripes).ok()?.max(1),
            bytes: perf.bytes,
            at_ms: perf.at.saturating_mul(100),
        },
        Marker::Status { at, bytes } => Notice::Hashed { bytes, at_ms: at.saturating_mul(100) },
    })
}

#[cfg(test)]
mod tests {
    use whimbrel_proto::marker::Perf;

    use super::*;

    fn reply(code: u16, lines: &[&str]) -> Reply {
        Reply::from_lines(code, lines)
    }

    fn peer() -> SocketAddr {
        "192.0.2.1:2811".parse().unwrap()
    }

    #[test]
    fn a_port_without_address_is_on_the_server_itself() {
        let read = |code, text: &str| passive(&reply(code, &[text]), peer()).map(|list| list[0].to_string());
        assert_eq!(read(227, "Entering Passive Mode (127,0,0,1,180,87)").as_deref(), Some("127.0.0.1:46167"));
        assert_eq!(read(229, "Entering Extended Passive Mode (|||6446|)").as_deref(), Some("192.0.2.1:6446"));
        assert_eq!(read(229, "Mode (|2|::1|6446|)").as_deref(), Some("[::1]:6446"));
        assert_eq!(read(229, "no address"), None);
    }

    #[test]
    fn the_working_directory_is_what_stands_between_quotes() {
        let read = |text: &str| working(&reply(257, &[text])).map(|name| String::from_utf8(name).unwrap());
        assert_eq!(read("\"/home/u\" is current directory.").as_deref(), Some("/home/u"));
        assert_eq!(read("\"/say \"\"hi\"\"\"").as_deref(), Some("/say \"hi\""));
        for unclear in ["/home/u", "\"/home/u", "\"\" is nothing", "\"/a\"\""] {
            assert_eq!(read(unclear), None, "{unclear}");
        }
    }

    #[test]
    fn striped_addresses_come_one_a_line() {
        let many = reply(229, &["Entering Striped Passive Mode.", "10,0,0,1,1,2", "|1|10.0.0.2|259|", "End"]);
        let expected: Vec<SocketAddr> = vec!["10.0.0.1:258".parse().unwrap(), "10.0.0.2:259".parse().unwrap()];
        assert_eq!(passive(&many, peer()), Some(expected));
    }

    #[test]
    fn markers_become_notices() {
        let ranges = vec![0..6, 8..9];
        assert_eq!(marker(Marker::Restart(ranges.clone())), Some(Notice::Ranges(ranges)));
        let perf = Marker::Perf(Perf { at: 14, stripe: 1, bytes: 6, stripes: 0 });
        assert_eq!(marker(perf), Some(Notice::Performance { stripe: 1, stripes: 1, bytes: 6, at_ms: 1400 }));
        assert_eq!(opened(&reply(120, &["soon"])), None);
        assert!(matches!(opened(&reply(125, &["go"])), Some(Notice::Opened { reused: true, .. })));
    }
}
