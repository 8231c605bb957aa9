//! What replies say: addresses, facts, checksums, markers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Notice, Outcome};
use whimbrel_proto::ranges;
use whimbrel_proto::timeval::Timestamp;

use super::Answer;
use crate::client::reply::Reply;

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
            reply.text()
        ))
    };
    match kind {
        Answer::Plain | Answer::Lines => Some(Outcome::Done),
        Answer::Directory => Some(Outcome::Directory(subject.to_vec())),
        // The amount is known from markers and listings, never from this reply.
        Answer::Transfer => Some(Outcome::Transferred { bytes: 0 }),
        Answer::Passive => passive(reply, peer).map(|address| Outcome::Listening(vec![address])),
        Answer::StripedPassive => striped(reply).map(Outcome::Listening),
        Answer::Facts => {
            reply.middle().first().map(|line| Outcome::Line(line.strip_prefix(b" ").unwrap_or(line).to_vec()))
        }
        Answer::Size => number(reply).map(Outcome::Size),
        Answer::Modified => {
            Timestamp::parse(reply.first().trim_ascii()).ok().map(|t| Outcome::Modified(t.secs, t.nanos))
        }
        Answer::Checksum => checksum(reply).map(Outcome::Checksum),
    }
    .ok_or_else(odd)
}

fn number(reply: &Reply) -> Option<u64> {
    ranges::parse_u64(reply.first().trim_ascii()).ok()
}

fn checksum(reply: &Reply) -> Option<String> {
    let text = std::str::from_utf8(reply.first()).ok()?.trim().to_ascii_lowercase();
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(text)
}

/// 227 (RFC 959 §4.1.2) or 229 (RFC 2428 §3, with the optional address the real server may add).
fn passive(reply: &Reply, peer: SocketAddr) -> Option<SocketAddr> {
    let text = std::str::from_utf8(reply.first()).ok()?;
    if reply.code == 229 {
        return bars(text.get(text.find('(')? + 1..text.rfind(')')?)?, Some(peer.ip()));
    }
    let digits = text.find(|c: char| c.is_ascii_digit())?;
    let start = text.find('(').map_or(digits, |at| at + 1);
    commas(text.get(start..)?)
}

fn commas(text: &str) -> Option<SocketAddr> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',' && c != ' ').unwrap_or(text.len());
    let numbers: Vec<u8> = text[..end].split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
    let [a, b, c, d, high, low] = numbers[..] else { return None };
    Some(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), u16::from(high) << 8 | u16::from(low)))
}

/// `|family|address|port|`; the first two may be empty where the address is known otherwise.
fn bars(text: &str, known: Option<IpAddr>) -> Option<SocketAddr> {
    let bar = text.chars().next()?;
    let fields: Vec<&str> = text.split(bar).collect();
    let [_, _, address, port, ..] = fields[..] else { return None };
    let ip = if address.is_empty() { known? } else { address.parse().ok()? };
    Some(SocketAddr::new(ip.to_canonical(), port.parse().ok()?))
}

fn striped(reply: &Reply) -> Option<Vec<SocketAddr>> {
    let one = |line: &Vec<u8>| {
        let text = std::str::from_utf8(line).ok()?.trim();
        if text.starts_with('|') { bars(text, None) } else { commas(text) }
    };
    let list: Vec<SocketAddr> = reply.middle().iter().map(one).collect::<Option<_>>()?;
    (!list.is_empty()).then_some(list)
}

/// The notice a preliminary reply stands for; unknown ones only show that the server lives.
pub(super) fn notice(reply: &Reply) -> Option<Notice> {
    match reply.code {
        125 | 150 => Some(Notice::Opened { reused: reply.code == 125, unique_name: None }),
        111 => range_marker(reply).map(Notice::Ranges),
        112 => performance(reply),
        113 => Some(Notice::Hashed { bytes: field(reply, "Bytes Processed:")?, at_ms: 0 }),
        _ => None,
    }
}

/// `111 Range Marker 0-6,10-20` (GFD.20 §4; ends are exclusive).
fn range_marker(reply: &Reply) -> Option<Vec<Range<u64>>> {
    let text = reply.first().trim_ascii();
    let at = text.iter().rposition(|&byte| byte == b' ').map_or(0, |at| at + 1);
    ranges::parse(&text[at..]).ok()
}

fn performance(reply: &Reply) -> Option<Notice> {
    let small = |label| field(reply, label).and_then(|n| u16::try_from(n).ok());
    Some(Notice::Performance {
        stripe: small("Stripe Index:").unwrap_or(0),
        stripes: small("Total Stripe Count:").unwrap_or(1).max(1),
        bytes: field(reply, "Stripe Bytes Transferred:")?,
        at_ms: 0,
    })
}

fn field(reply: &Reply, label: &str) -> Option<u64> {
    reply.lines.iter().find_map(|line| {
        let text = std::str::from_utf8(line).ok()?.trim();
        let (head, rest) = text.split_at_checked(label.len())?;
        if head.eq_ignore_ascii_case(label) { rest.trim().parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16, lines: &[&str]) -> Reply {
        Reply { code, lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect() }
    }

    fn peer() -> SocketAddr {
        "192.0.2.1:2811".parse().unwrap()
    }

    #[test]
    fn passive_addresses_are_read_in_every_form_servers_use() {
        let read = |code, text: &str| passive(&reply(code, &[text]), peer()).map(|a| a.to_string());
        assert_eq!(read(227, "Entering Passive Mode (127,0,0,1,180,87)").as_deref(), Some("127.0.0.1:46167"));
        assert_eq!(read(227, "=10,0,0,1,1,2.").as_deref(), Some("10.0.0.1:258"));
        assert_eq!(read(229, "Entering Extended Passive Mode (|||6446|)").as_deref(), Some("192.0.2.1:6446"));
        assert_eq!(read(229, "Mode (|2|::1|6446|)").as_deref(), Some("[::1]:6446"));
        assert_eq!(read(227, "Entering Passive Mode (1,2,3,4,500,6)"), None);
        assert_eq!(read(229, "no address"), None);
    }

    #[test]
    fn striped_addresses_come_one_a_line() {
        let many = reply(229, &["Entering Striped Passive Mode.", " 10,0,0,1,1,2", " |1|10.0.0.2|259|", "End"]);
        let expected: Vec<SocketAddr> = vec!["10.0.0.1:258".parse().unwrap(), "10.0.0.2:259".parse().unwrap()];
        assert_eq!(striped(&many), Some(expected));
    }

    #[test]
    fn markers_become_notices() {
        assert_eq!(notice(&reply(111, &["Range Marker 0-6,8-9"])), Some(Notice::Ranges(vec![0..6, 8..9])));
        let perf = reply(
            112,
            &[
                "Perf Marker",
                " Timestamp:  1.4",
                " Stripe Index: 1",
                " Stripe Bytes Transferred: 6",
                " Total Stripe Count: 2",
                "End.",
            ],
        );
        assert_eq!(notice(&perf), Some(Notice::Performance { stripe: 1, stripes: 2, bytes: 6, at_ms: 0 }));
    }
}
