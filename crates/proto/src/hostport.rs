//! Addresses on the wire: `h,h,h,h,p,p` of PORT and 227, `|f|addr|port|` of EPRT and 229, the lists of SPAS and SPOR.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use crate::op::Family;
use crate::reply::Reply;

/// Most addresses accepted from one SPAS reply or SPOR command.
pub const MAX_ADDRESSES: usize = 4096;

/// Why an address was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text has none of the known forms.
    #[error("the address is malformed")]
    Form,
    /// The network protocol number is neither 1 nor 2 (RFC 2428 §2: reply 522).
    #[error("the network protocol is neither 1 (IPv4) nor 2 (IPv6)")]
    Protocol,
    /// More than [`MAX_ADDRESSES`].
    #[error("the list has too many addresses")]
    TooMany,
    /// A reply whose code carries no address.
    #[error("reply {0} carries no address")]
    Code(u16),
}

fn decimal(text: &[u8], max: u32) -> Option<u32> {
    if text.is_empty() || text.len() > 5 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n = text.iter().fold(0u32, |n, &b| n * 10 + u32::from(b - b'0'));
    (n <= max).then_some(n)
}

/// Parses `h1,h2,h3,h4,p1,p2` (RFC 959 §5.3.2); spaces around the numbers are tolerated.
pub fn parse_port(text: &[u8]) -> Result<SocketAddr, AddressError> {
    let mut numbers = [0u8; 6];
    let mut items = text.split(|&b| b == b',');
    for slot in &mut numbers {
        let item = items.next().ok_or(AddressError::Form)?.trim_ascii();
        *slot = decimal(item, 255).ok_or(AddressError::Form)? as u8;
    }
    if items.next().is_some() {
        return Err(AddressError::Form);
    }
    let [a, b, c, d, high, low] = numbers;
    Ok(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into())
}

/// Writes `h1,h2,h3,h4,p1,p2`; `None` for an IPv6 address that is not an IPv4-mapped one.
pub fn format_port(address: SocketAddr) -> Option<String> {
    let IpAddr::V4(ip) = address.ip().to_canonical() else { return None };
    let [a, b, c, d] = ip.octets();
    let [high, low] = address.port().to_be_bytes();
    Some(format!("{a},{b},{c},{d},{high},{low}"))
}

/// Parses `<d>family<d>address<d>port<d>`, any printable delimiter (RFC 2428 §2).
pub fn parse_eprt(text: &[u8]) -> Result<SocketAddr, AddressError> {
    let [family, address, port] = split_delimited(text)?;
    let family = decimal(family, u32::from(u16::MAX)).ok_or(AddressError::Form)?;
    let port = parse_nonzero_port(port)?;
    let address = std::str::from_utf8(address).map_err(|_| AddressError::Form)?;
    let ip = match family {
        1 => IpAddr::V4(address.parse::<Ipv4Addr>().map_err(|_| AddressError::Form)?),
        2 => IpAddr::V6(address.parse::<Ipv6Addr>().map_err(|_| AddressError::Form)?),
        _ => return Err(AddressError::Protocol),
    };
    Ok(SocketAddr::new(ip.to_canonical(), port))
}

/// The three fields between four equal delimiters.
fn split_delimited(text: &[u8]) -> Result<[&[u8]; 3], AddressError> {
    let (&delimiter, rest) = text.split_first().ok_or(AddressError::Form)?;
    // RFC 2428 §2: "The delimiter character MUST be one of the ASCII characters in range 33-126 inclusive".
    if !(33..=126).contains(&delimiter) {
        return Err(AddressError::Form);
    }
    let mut fields = rest.split(|&b| b == delimiter);
    match (fields.next(), fields.next(), fields.next(), fields.next(), fields.next()) {
        (Some(family), Some(address), Some(port), Some(b""), None) => Ok([family, address, port]),
        _ => Err(AddressError::Form),
    }
}

fn parse_nonzero_port(text: &[u8]) -> Result<u16, AddressError> {
    match decimal(text, u32::from(u16::MAX)) {
        Some(0) | None => Err(AddressError::Form),
        Some(port) => Ok(port as u16),
    }
}

/// Writes `|1|addr|port|` or `|2|addr|port|`.
pub fn format_eprt(address: SocketAddr) -> String {
    let ip = address.ip().to_canonical();
    let family = if ip.is_ipv4() { 1 } else { 2 };
    format!("|{family}|{ip}|{}|", address.port())
}

/// Parses one SPAS line or SPOR item: the PORT form or the EPRT form.
pub fn parse_either(text: &[u8]) -> Result<SocketAddr, AddressError> {
    let text = text.trim_ascii();
    match text.first() {
        Some(b'0'..=b'9') => parse_port(text),
        _ => parse_eprt(text),
    }
}

/// Writes the PORT form for IPv4 unless `extended`, else the EPRT form.
pub fn format_either(address: SocketAddr, extended: bool) -> String {
    match format_port(address) {
        Some(text) if !extended => text,
        _ => format_eprt(address),
    }
}

/// Parses the items of SPOR, separated by spaces (GFD.20 §3.3).
pub fn parse_spor(text: &[u8]) -> Result<Vec<SocketAddr>, AddressError> {
    let items = text.split(|&b| b == b' ').filter(|item| !item.is_empty());
    let addresses: Vec<_> = items.take(MAX_ADDRESSES + 1).map(parse_either).collect::<Result<_, _>>()?;
    match addresses.len() {
        0 => Err(AddressError::Form),
        n if n > MAX_ADDRESSES => Err(AddressError::TooMany),
        _ => Ok(addresses),
    }
}

/// Where a passive server listens, as its reply tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passive {
    /// One address, or one per stripe.
    Addresses(Vec<SocketAddr>),
    /// Only a port: the host is that of the control connection (RFC 2428 §3).
    Port(u16),
}

/// Reads 227, 127, 229 and 129 in all their forms, single and striped.
///
/// # Errors
/// [`AddressError::Code`] for another code, else the fault of the address.
pub fn parse_passive(reply: &Reply) -> Result<Passive, AddressError> {
    match reply.code {
        227 | 127 => Ok(Passive::Addresses(vec![parse_227(reply.last_text())?])),
        229 | 129 if reply.lines.len() > 1 => parse_spas(reply).map(Passive::Addresses),
        229 | 129 => parse_229(reply.last_text()),
        code => Err(AddressError::Code(code)),
    }
}

/// The address in the text of a 227: in parentheses, or (RFC 1123 §4.1.2.6) found by its digits.
fn parse_227(text: &[u8]) -> Result<SocketAddr, AddressError> {
    if let Some(inner) = in_parentheses(text) {
        return parse_port(inner);
    }
    // RFC 1123 §4.1.2.6: "a User-FTP program ... MUST scan the reply for the first digit of the host and port numbers".
    let start = text.iter().position(u8::is_ascii_digit).ok_or(AddressError::Form)?;
    let is_part = |b: &u8| b.is_ascii_digit() || *b == b',';
    let length = text[start..].iter().position(|b| !is_part(b)).unwrap_or(text.len() - start);
    parse_port(&text[start..start + length])
}

fn in_parentheses(text: &[u8]) -> Option<&[u8]> {
    let open = text.iter().position(|&b| b == b'(')?;
    let close = text[open..].iter().position(|&b| b == b')')?;
    Some(&text[open + 1..open + close])
}

/// `(|||port|)`, or with all fields as the reference server's `-epsv-ip` writes them.
fn parse_229(text: &[u8]) -> Result<Passive, AddressError> {
    let inner = in_parentheses(text).ok_or(AddressError::Form)?;
    match split_delimited(inner)? {
        [_, b"", port] => parse_nonzero_port(port).map(Passive::Port),
        _ => parse_eprt(inner).map(|address| Passive::Addresses(vec![address])),
    }
}

fn parse_spas(reply: &Reply) -> Result<Vec<SocketAddr>, AddressError> {
    let middle = reply.middle_lines();
    if middle.len() > MAX_ADDRESSES {
        return Err(AddressError::TooMany);
    }
    let addresses: Vec<_> = middle.iter().map(|line| parse_either(line)).collect::<Result<_, _>>()?;
    if addresses.is_empty() { Err(AddressError::Form) } else { Ok(addresses) }
}

/// The reply to PASV (227), or with `code` 127 after a delayed one; `None` for IPv6.
pub fn pasv_reply(code: u16, address: SocketAddr) -> Option<Reply> {
    Some(Reply::line(code, &format!("Entering Passive Mode ({})", format_port(address)?)))
}

/// The reply to EPSV (229 or 129).
pub fn epsv_reply(code: u16, port: u16) -> Reply {
    Reply::line(code, &format!("Entering Extended Passive Mode (|||{port}|)"))
}

/// The reply to SPAS (229 or 129), one address a line.
pub fn spas_reply(code: u16, addresses: &[SocketAddr], extended: bool) -> Reply {
    let body = addresses.iter().map(|&a| format_either(a, extended));
    Reply::multi(code, "Entering Striped Passive Mode.", body, "End")
}

/// The family number of RFC 2428 §2: 1 or 2.
pub fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 1,
        Family::V6 => 2,
    }
}

/// The family of a number of RFC 2428 §2.
pub fn parse_family(text: &[u8]) -> Result<Family, AddressError> {
    match text {
        b"1" => Ok(Family::V4),
        b"2" => Ok(Family::V6),
        _ if decimal(text, u32::from(u16::MAX)).is_some() => Err(AddressError::Protocol),
        _ => Err(AddressError::Form),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reply::ReplyParser;

    fn reply(text: &str) -> Reply {
        let mut parser = ReplyParser::default();
        parser.feed(text.as_bytes());
        parser.next_reply().unwrap().unwrap()
    }

    fn v4(text: &str) -> Passive {
        Passive::Addresses(vec![text.parse().unwrap()])
    }

    #[test]
    fn the_address_of_every_real_passive_reply_is_found() {
        for (text, want) in [
            ("227 Entering Passive Mode (127,0,0,1,180,87)\r\n", v4("127.0.0.1:46167")),
            ("127 PORT (10,1,2,3,1,2)\r\n", v4("10.1.2.3:258")),
            ("229 Entering Extended Passive Mode (|||6446|)\r\n", Passive::Port(6446)),
            ("129 Entering Extended Passive Mode (|2|::1|6446|)\r\n", v4("[::1]:6446")),
            ("229 Entering Extended Passive Mode (!!!6446!)\r\n", Passive::Port(6446)),
            // RFC 1123 §4.1.2.6: the format of the 227 reply is not well standardized.
            ("227 Entering Passive Mode. 10,0,0,1,0,21\r\n", v4("10.0.0.1:21")),
            ("227 =10,0,0,1,0,21\r\n", v4("10.0.0.1:21")),
        ] {
            assert_eq!(parse_passive(&reply(text)), Ok(want), "{text}");
        }
    }

    #[test]
    fn striped_lists_are_read_in_both_forms() {
        let old = reply("229-Entering Striped Passive Mode.\r\n 10,0,0,1,0,21\r\n 10,0,0,2,1,0\r\n229 End\r\n");
        let want = vec!["10.0.0.1:21".parse().unwrap(), "10.0.0.2:256".parse().unwrap()];
        assert_eq!(parse_passive(&old), Ok(Passive::Addresses(want)));
        let new =
            reply("229-Entering Striped Passive Mode.\r\n |1|10.0.0.1|21|\r\n |2|::ffff:127.0.0.1|22|\r\n229 End\r\n");
        let want = vec!["10.0.0.1:21".parse().unwrap(), "127.0.0.1:22".parse().unwrap()];
        assert_eq!(parse_passive(&new), Ok(Passive::Addresses(want)));
    }

    #[test]
    fn replies_without_an_address_are_refused() {
        assert_eq!(parse_passive(&reply("200 Passive delayed.\r\n")), Err(AddressError::Code(200)));
        for text in ["227 no\r\n", "227 (1,2,3)\r\n", "229 (|||0|)\r\n", "229 nothing\r\n", "229-a\r\n229 End\r\n"] {
            assert_eq!(parse_passive(&reply(text)), Err(AddressError::Form), "{text}");
        }
    }

    // RFC 2428 §2: "EPRT |1|132.235.1.2|6275|" and "EPRT |2|1080::8:800:200C:417A|5282|".
    #[test]
    fn the_rfc_examples_of_eprt_are_read() {
        assert_eq!(parse_eprt(b"|1|132.235.1.2|6275|"), Ok("132.235.1.2:6275".parse().unwrap()));
        assert_eq!(parse_eprt(b"|2|1080::8:800:200C:417A|5282|"), Ok("[1080::8:800:200C:417A]:5282".parse().unwrap()));
    }

    // RFC 2428 §2: "(522) Extended Port Failure - unknown network protocol".
    #[test]
    fn an_unknown_network_protocol_is_told_apart() {
        assert_eq!(parse_eprt(b"|3|x|1|"), Err(AddressError::Protocol));
        assert_eq!(parse_family(b"3"), Err(AddressError::Protocol));
        assert_eq!(parse_family(b"x"), Err(AddressError::Form));
    }

    #[test]
    fn broken_addresses_are_refused() {
        for bad in ["", "1,2,3,4,5", "1,2,3,4,5,6,7", "256,0,0,1,1,1", "1,2,3,4,5,", "a,b,c,d,e,f", "-1,0,0,1,1,1"] {
            assert_eq!(parse_port(bad.as_bytes()), Err(AddressError::Form), "{bad}");
        }
        for bad in [
            "",
            "|",
            "|1|1.2.3.4|5",
            "|1|1.2.3.4|5|6|",
            "|1|::1|5|",
            "|2|1.2.3.4|5|",
            "|1|1.2.3.4|65536|",
            "|1|1.2.3.4|0|",
            " 1 1.2.3.4 5 ",
        ] {
            assert_eq!(parse_eprt(bad.as_bytes()), Err(AddressError::Form), "{bad}");
        }
        assert_eq!(parse_spor(b"   "), Err(AddressError::Form));
    }

    #[test]
    fn replies_are_written_as_the_reference_server_writes_them() {
        let a: SocketAddr = "127.0.0.1:46167".parse().unwrap();
        let pasv = pasv_reply(227, a).unwrap();
        assert_eq!(pasv.to_bytes(), b"227 Entering Passive Mode (127,0,0,1,180,87)\r\n");
        assert_eq!(epsv_reply(229, 5).to_bytes(), b"229 Entering Extended Passive Mode (|||5|)\r\n");
        let spas = spas_reply(229, &[a], false);
        assert_eq!(spas.to_bytes(), b"229-Entering Striped Passive Mode.\r\n 127,0,0,1,180,87\r\n229 End\r\n");
        assert_eq!(pasv_reply(227, "[::1]:5".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn any_address_survives_both_forms(ip in any::<IpAddr>(), port in 1u16..) {
            let address = SocketAddr::new(ip.to_canonical(), port);
            prop_assert_eq!(parse_eprt(format_eprt(address).as_bytes()), Ok(address));
            prop_assert_eq!(parse_either(format_either(address, false).as_bytes()), Ok(address));
            let list = [address, address];
            let text = list.map(|a| format_either(a, true)).join(" ");
            prop_assert_eq!(parse_spor(text.as_bytes()).unwrap(), list.to_vec());
        }

        #[test]
        fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = (parse_port(&bytes), parse_eprt(&bytes), parse_spor(&bytes), parse_227(&bytes), parse_229(&bytes));
        }
    }
}
