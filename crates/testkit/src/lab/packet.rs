//! Reads the headers of a packet as it crosses a link: enough to tell flows, flags and sizes apart.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_sys::tun::VNET_HEADER_BYTES;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The headers of one IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// IP protocol number: 6 is TCP, 17 UDP. IPv6 extension headers are not followed.
    pub protocol: u8,
    /// Source and destination port, of TCP and UDP.
    pub ports: Option<(u16, u16)>,
    /// The TCP header.
    pub tcp: Option<Tcp>,
}

/// The TCP header of one packet (RFC 9293 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Control bits, FIN in the lowest place.
    pub flags: u8,
    /// Payload in bytes.
    pub payload: usize,
}

impl Tcp {
    /// Whether the FIN bit is set.
    pub fn fin(&self) -> bool {
        self.flags & 0x01 != 0
    }

    /// Whether the SYN bit is set.
    pub fn syn(&self) -> bool {
        self.flags & 0x02 != 0
    }

    /// Whether the RST bit is set.
    pub fn rst(&self) -> bool {
        self.flags & 0x04 != 0
    }

    /// Whether the ACK bit is set.
    pub fn ack(&self) -> bool {
        self.flags & 0x10 != 0
    }
}

impl Packet {
    /// Parses an IPv4 or IPv6 packet; `None` when it is neither or cut short. Ports of later fragments are not read.
    pub fn parse(bytes: &[u8]) -> Option<Packet> {
        let (source, destination, protocol, transport) = match bytes.first()? >> 4 {
            4 => parse_v4(bytes)?,
            6 => parse_v6(bytes)?,
            _ => return None,
        };
        let tcp = if protocol == TCP { parse_tcp(transport) } else { None };
        let ports = matches!(protocol, TCP | UDP).then(|| Some((word(transport, 0)?, word(transport, 2)?))).flatten();
        Some(Packet { source, destination, protocol, ports, tcp })
    }

    /// Whether this opens a TCP connection: SYN without ACK.
    pub fn opens_connection(&self) -> bool {
        self.tcp.is_some_and(|tcp| tcp.syn() && !tcp.ack())
    }
}

/// The first bytes of what a packet carries, at most 512, if it is TCP with no more than 4 KiB: lines of a dialogue.
pub(crate) fn words(bytes: &[u8]) -> Vec<u8> {
    const MOST: usize = 4 << 10;
    const KEPT: usize = 512;
    let network = match bytes.first().map(|byte| byte >> 4) {
        Some(4) => parse_v4(bytes),
        Some(6) => parse_v6(bytes),
        _ => None,
    };
    let Some((_, _, TCP, segment)) = network else { return Vec::new() };
    let payload = parse_tcp(segment).map_or(0, |tcp| tcp.payload);
    let words = &segment[segment.len() - payload..];
    if payload > MOST { Vec::new() } else { words[..payload.min(KEPT)].to_vec() }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.ports.unwrap_or_default();
        write!(f, "{}.{from} > {}.{to} protocol {}", self.source, self.destination, self.protocol)?;
        let Some(tcp) = self.tcp else { return Ok(()) };
        let names = [(tcp.syn(), 'S'), (tcp.fin(), 'F'), (tcp.rst(), 'R'), (tcp.flags & 8 != 0, 'P'), (tcp.ack(), '.')];
        let flags: String = names.iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
        write!(f, " [{flags}] seq {} ack {} payload {}", tcp.sequence, tcp.acknowledgment, tcp.payload)
    }
}

type Network<'a> = (IpAddr, IpAddr, u8, &'a [u8]);

fn parse_v4(bytes: &[u8]) -> Option<Network<'_>> {
    let header = usize::from(bytes[0] & 15) * 4;
    let total = usize::from(word(bytes, 2)?);
    let address = |at: usize| Some(IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?)));
    let later_fragment = word(bytes, 6)? & 0x1fff != 0;
    let end = if later_fragment { header } else { total.min(bytes.len()) };
    Some((address(12)?, address(16)?, *bytes.get(9)?, bytes.get(header..end)?))
}

fn parse_v6(bytes: &[u8]) -> Option<Network<'_>> {
    let end = bytes.len().min(40 + usize::from(word(bytes, 4)?));
    let address = |at: usize| Some(IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?)));
    Some((address(8)?, address(24)?, *bytes.get(6)?, bytes.get(40..end)?))
}

fn parse_tcp(segment: &[u8]) -> Option<Tcp> {
    let long = |at: usize| Some(u32::from_be_bytes(segment.get(at..at + 4)?.try_into().ok()?));
    let header = usize::from(segment.get(12)? >> 4) * 4;
    Some(Tcp {
        sequence: long(4)?,
        acknowledgment: long(8)?,
        flags: *segment.get(13)?,
        payload: segment.len().checked_sub(header)?,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Splits what a TUN device gave into its `virtio_net_hdr` and the IP packet.
pub(crate) fn ip_part(frame: &[u8]) -> &[u8] {
    frame.get(VNET_HEADER_BYTES..).unwrap_or_default()
}

/// Whether an IP packet goes to a multicast group (RFC 1112 §4, RFC 4291 §2.7).
pub(crate) fn is_multicast(ip: &[u8]) -> bool {
    match ip.first().map(|byte| byte >> 4) {
        Some(4) => ip.get(16).is_some_and(|byte| byte >> 4 == 14),
        Some(6) => ip.get(24) == Some(&0xff),
        _ => false,
    }
}

/// How many packets, and bytes of them, `frame` is on a real wire: a large TCP segment counts as what it is cut into.
pub(crate) fn on_the_wire(frame: &[u8]) -> (u64, u64) {
    let bytes = ip_part(frame).len();
    // virtio_net_hdr: gso_type at 1, gso_size at 4, in the machine's byte order.
    let segment = match frame {
        [_, kind, _, _, low, high, ..] if *kind != 0 => usize::from(u16::from_ne_bytes([*low, *high])),
        _ => 0,
    };
    let payload = Packet::parse(ip_part(frame)).and_then(|packet| packet.tcp).map_or(0, |tcp| tcp.payload);
    if segment == 0 || payload <= segment {
        return (1, bytes as u64);
    }
    let packets = payload.div_ceil(segment);
    let header = bytes - payload;
    (packets as u64, (payload + packets * header) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4_syn() -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        bytes.extend([0x10, 0x00, 0x08, 0x47, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x02, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"data");
        bytes
    }

    #[test]
    fn tcp_over_ipv4_is_read_field_by_field() {
        let packet = Packet::parse(&v4_syn()).expect("parses");
        assert_eq!(packet.source.to_string(), "10.0.0.1");
        assert_eq!(packet.destination.to_string(), "10.0.0.2");
        assert_eq!(packet.ports, Some((4096, 2119)));
        assert_eq!(packet.tcp, Some(Tcp { sequence: 7, acknowledgment: 9, flags: 2, payload: 4 }));
        assert!(packet.opens_connection());
        assert!(packet.to_string().contains("[S] seq 7 ack 9 payload 4"), "{packet}");
    }

    #[test]
    fn udp_over_ipv6_has_ports_and_no_tcp_header() {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 8, UDP, 64];
        bytes.extend(Ipv6Addr::LOCALHOST.octets());
        bytes.extend(Ipv6Addr::LOCALHOST.octets());
        bytes.extend([0, 53, 0, 54, 0, 8, 0, 0]);
        let packet = Packet::parse(&bytes).expect("parses");
        assert_eq!((packet.ports, packet.tcp), (Some((53, 54)), None));
        assert!(!packet.opens_connection());
    }

    #[test]
    fn any_shortened_packet_is_parsed_or_refused_without_a_panic() {
        let whole = v4_syn();
        for length in 0..whole.len() {
            if let Some(packet) = Packet::parse(&whole[..length]) {
                assert!(packet.tcp.is_none_or(|tcp| tcp.payload < 4));
            }
        }
        assert_eq!(Packet::parse(&[0x70; 60]), None);
    }

    #[test]
    fn multicast_is_told_by_its_destination() {
        let mut packet = v4_syn();
        assert!(!is_multicast(&packet));
        packet[16] = 224;
        assert!(is_multicast(&packet));
        let mut packet = [0x60; 40];
        assert!(!is_multicast(&packet));
        packet[24] = 0xff;
        assert!(is_multicast(&packet));
        assert!(!is_multicast(&[]));
    }

    #[test]
    fn a_large_segment_counts_as_the_packets_it_is_cut_into() {
        let mut frame = vec![0; VNET_HEADER_BYTES];
        frame.extend(v4_syn());
        assert_eq!(on_the_wire(&frame), (1, 44));
        // 4 bytes of payload in segments of 3: two packets with 40 bytes of headers each.
        (frame[1], frame[4]) = (1, 3);
        assert_eq!(on_the_wire(&frame), (2, 84));
    }
}
