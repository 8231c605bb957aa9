//! Facts of probes on the wire (our own): lines ` FACT <name> <value>` of a reply, and the bounds `<bytes>,<milliseconds>`.

use std::time::Duration;

use crate::op::{Bounds, Fact};
use crate::ranges::parse_u64;
use crate::reply::Reply;

/// Most facts of one reply; more are left out.
pub const MAX_FACTS: usize = 512;
/// Longest name, bytes.
pub const MAX_NAME: usize = 64;
/// Longest value, bytes; longer ones are cut.
pub const MAX_VALUE: usize = 1024;

const WORD: &[u8] = b"FACT ";

/// Whether this is the name of a fact: 1 to 64 of `a`-`z`, `0`-`9`, `.`, `_` and `-`.
pub fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed)
}

/// The line of a fact without leading space; `None` for what is no name.
pub fn line(fact: &Fact) -> Option<String> {
    let printable: String = fact.value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut end = printable.len().min(MAX_VALUE);
    while !printable.is_char_boundary(end) {
        end -= 1;
    }
    is_name(&fact.name).then(|| format!("FACT {} {}", fact.name, &printable[..end]).trim_end().to_owned())
}

/// The facts of a reply; lines that are none are passed over.
pub fn from_reply(reply: &Reply) -> Vec<Fact> {
    reply.middle_lines().iter().filter_map(|line| parse(line)).take(MAX_FACTS).collect()
}

fn parse(line: &[u8]) -> Option<Fact> {
    let rest = line.trim_ascii_start().strip_prefix(WORD)?;
    let text = String::from_utf8_lossy(rest);
    let (name, value) = text.split_once(' ').unwrap_or((&text, ""));
    let fits = is_name(name) && value.len() <= 4 * MAX_VALUE;
    fits.then(|| Fact::new(name, value.trim()))
}

/// `<bytes>,<milliseconds>`.
pub fn format_bounds(bounds: Bounds) -> String {
    format!("{},{}", bounds.bytes, bounds.time.as_millis().min(u128::from(u64::MAX)))
}

/// Reads [`format_bounds`]; both at least 1.
pub fn parse_bounds(text: &[u8]) -> Option<Bounds> {
    let comma = text.iter().position(|&b| b == b',')?;
    let (bytes, millis) = (parse_u64(&text[..comma]).ok()?, parse_u64(&text[comma + 1..]).ok()?);
    (bytes > 0 && millis > 0).then(|| Bounds { bytes, time: Duration::from_millis(millis) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_survive_the_wire_and_cannot_end_a_reply() {
        let facts =
            [Fact::new("tcp.allowed", "reno cubic"), Fact::new("a\r\n226 x", "1"), Fact::new("k", "v\r\n226 w")];
        let lines: Vec<String> = facts.iter().filter_map(line).collect();
        assert_eq!(lines, ["FACT tcp.allowed reno cubic", "FACT k v  226 w"]);
        let reply = Reply::multi(250, "Probed.", lines.iter().map(|l| l.clone().into_bytes()), "End");
        let read = from_reply(&reply);
        assert_eq!(read, [facts[0].clone(), Fact::new("k", "v  226 w")]);
    }

    #[test]
    fn long_values_are_cut_at_a_character_and_odd_lines_passed_over() {
        let long = line(&Fact::new("x", "\u{e9}".repeat(MAX_VALUE))).unwrap();
        assert_eq!(long.len(), "FACT x ".len() + MAX_VALUE);
        let lines = ["LEAF 0-1 00", "FACT", "FACT ", "FACT UPPER 1", "FACT empty"].map(|l| l.as_bytes().to_vec());
        assert_eq!(from_reply(&Reply::multi(250, "", lines, "End")), [Fact::new("empty", "")]);
    }

    #[test]
    fn bounds_are_two_positive_numbers() {
        let bounds = Bounds { bytes: 5, time: Duration::from_millis(1500) };
        assert_eq!(format_bounds(bounds), "5,1500");
        assert_eq!(parse_bounds(b"5,1500"), Some(bounds));
        for bad in ["", "5", "5,", ",5", "0,5", "5,0", "5,5,5", "-1,5", "5, 5"] {
            assert_eq!(parse_bounds(bad.as_bytes()), None, "{bad}");
        }
        let most = Bounds { bytes: 3, time: Duration::from_secs(1) };
        assert_eq!(bounds.within(most), most);
    }
}
