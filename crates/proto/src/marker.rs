//! Transfer markers: 111 restart, 112 performance, 113 checksum status (GFD.20 §3.2.6 and §4).

use std::ops::Range;

use crate::ranges;
use crate::reply::Reply;

/// A marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// 111: ranges that are on disk, end exclusive; only those new since the last one, so a client accumulates.
    Restart(Vec<Range<u64>>),
    /// 112: bytes moved on one stripe.
    Perf(Perf),
    /// 113: bytes hashed.
    Status {
        /// Tenths of a second since 1970-01-01 UTC.
        at: u64,
        /// Bytes.
        bytes: u64,
    },
}

/// The numbers of a 112.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Perf {
    /// Tenths of a second since 1970-01-01 UTC.
    pub at: u64,
    /// Stripe, from 0.
    pub stripe: u32,
    /// Bytes moved on that stripe since the transfer started.
    pub bytes: u64,
    /// Stripes in all.
    pub stripes: u32,
}

/// A marker reply that does not hold what its code promises; the reference client ignores such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {0} marker is malformed")]
pub struct MarkerError(pub u16);

impl Marker {
    /// The reply that carries the marker.
    pub fn to_reply(&self) -> Reply {
        match self {
            Self::Restart(list) => Reply::line(111, &format!("Range Marker {}", ranges::format(list))),
            Self::Perf(perf) => Reply::multi(112, "Perf Marker", perf.lines(), "End."),
            Self::Status { at, bytes } => {
                let lines = [format!("Timestamp: {}", tenths(*at)), format!("Bytes Processed: {bytes}")];
                Reply::multi(113, "Status Marker", lines, "End.")
            }
        }
    }

    /// Reads a marker; `None` if the reply is none.
    pub fn parse(reply: &Reply) -> Option<Result<Self, MarkerError>> {
        let marker = match reply.code {
            111 => parse_restart(reply),
            112 => parse_perf(reply),
            113 => parse_status(reply),
            _ => return None,
        };
        Some(marker.ok_or(MarkerError(reply.code)))
    }
}

impl Perf {
    fn lines(&self) -> [String; 4] {
        [
            format!("Timestamp: {}", tenths(self.at)),
            format!("Stripe Index: {}", self.stripe),
            format!("Stripe Bytes Transferred: {}", self.bytes),
            format!("Total Stripe Count: {}", self.stripes),
        ]
    }
}

fn tenths(at: u64) -> String {
    format!("{}.{}", at / 10, at % 10)
}

/// `seconds[.fraction]` in tenths.
fn parse_tenths(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = match text.iter().position(|&b| b == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b"0"[..]),
    };
    let tenth = u64::from(fraction.first().filter(|b| b.is_ascii_digit())? - b'0');
    ranges::parse_u64(whole).ok()?.checked_mul(10)?.checked_add(tenth)
}

/// The value behind `name:` on any line; letter case and the number of spaces do not matter.
fn field<'a>(reply: &'a Reply, name: &str) -> Option<&'a [u8]> {
    reply.lines.iter().find_map(|line| {
        let colon = line.iter().position(|&b| b == b':')?;
        let matches = line[..colon].trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        matches.then(|| line[colon + 1..].trim_ascii())
    })
}

fn number(reply: &Reply, name: &str) -> Option<u64> {
    ranges::parse_u64(field(reply, name)?).ok()
}

/// The list is the last word; without one nothing is new.
fn parse_restart(reply: &Reply) -> Option<Marker> {
    let text = reply.last_text().trim_ascii();
    let start = text.iter().position(u8::is_ascii_digit)?;
    ranges::parse(&text[start..]).ok().map(Marker::Restart)
}

fn parse_perf(reply: &Reply) -> Option<Marker> {
    let small = |name, default| number(reply, name).map_or(Some(default), |n| u32::try_from(n).ok());
    Some(Marker::Perf(Perf {
        at: parse_tenths(field(reply, "Timestamp")?)?,
        stripe: small("Stripe Index", 0)?,
        bytes: number(reply, "Stripe Bytes Transferred")?,
        stripes: small("Total Stripe Count", 1)?,
    }))
}

fn parse_status(reply: &Reply) -> Option<Marker> {
    let at = parse_tenths(field(reply, "Timestamp")?)?;
    Some(Marker::Status { at, bytes: number(reply, "Bytes Processed")? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reply::ReplyParser;

    fn read(bytes: &[u8]) -> Option<Result<Marker, MarkerError>> {
        let mut parser = ReplyParser::default();
        parser.feed(bytes);
        Marker::parse(&parser.next_reply().unwrap().unwrap())
    }

    #[test]
    fn the_real_servers_markers_are_read_with_their_two_spaces() {
        let perf = b"112-Perf Marker\r\n Timestamp:  1795228805.4\r\n Stripe Index: 0\r\n Stripe Bytes Transferred: 6\r\n Total Stripe Count: 1\r\n112 End.\r\n";
        assert_eq!(read(perf), Some(Ok(Marker::Perf(Perf { at: 17_952_288_054, stripe: 0, bytes: 6, stripes: 1 }))));
        assert_eq!(read(b"111 Range Marker 0-6\r\n"), Some(Ok(Marker::Restart(std::iter::once(0..6).collect()))));
        let status = b"113-Status Marker\r\n Timestamp: 5\r\n Bytes Processed: 7\r\n113 End.\r\n";
        assert_eq!(read(status), Some(Ok(Marker::Status { at: 50, bytes: 7 })));
    }

    #[test]
    fn other_replies_are_no_markers_and_broken_ones_are_told() {
        assert_eq!(read(b"150 Beginning transfer.\r\n"), None);
        assert_eq!(read(b"111 Range Marker\r\n"), Some(Err(MarkerError(111))));
        assert_eq!(read(b"111 Range Marker 6-0\r\n"), Some(Err(MarkerError(111))));
        assert_eq!(read(b"112-Perf Marker\r\n Timestamp: x\r\n112 End.\r\n"), Some(Err(MarkerError(112))));
        assert_eq!(read(b"113 Status\r\n"), Some(Err(MarkerError(113))));
    }

    proptest! {
        #[test]
        fn any_marker_survives_the_wire(at in 0u64..1 << 50, stripe: u32, bytes: u64, stripes: u32, a: u64, b: u64) {
            for marker in [
                Marker::Restart(vec![a.min(b)..a.max(b), 0..a]),
                Marker::Perf(Perf { at, stripe, bytes, stripes }),
                Marker::Status { at, bytes },
            ] {
                prop_assert_eq!(read(&marker.to_reply().to_bytes()), Some(Ok(marker)));
            }
        }
    }
}
