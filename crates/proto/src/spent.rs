//! Where the time of a transfer went at one end (our own): the line ` SPENT <name>=<value>;...` of its final reply.

use crate::op::Spent;
use crate::ranges::parse_u64;
use crate::reply::Reply;

/// Longest name of a congestion control (`TCP_CA_NAME_MAX` of Linux, without its end).
pub const MAX_CONGESTION: usize = 15;

const WORD: &[u8] = b"SPENT ";

/// Name on the wire, and the field it stands for.
type Field = (&'static str, fn(&mut Spent) -> &mut u64);

const FIELDS: [Field; 24] = [
    ("bytes", |s| &mut s.bytes),
    ("took", |s| &mut s.took),
    ("threads", |s| &mut s.threads),
    ("storage", |s| &mut s.storage),
    ("network", |s| &mut s.network),
    ("hash", |s| &mut s.hash),
    ("cpu", |s| &mut s.cpu),
    ("proof", |s| &mut s.proof),
    ("proof_storage", |s| &mut s.proof_storage),
    ("proof_hash", |s| &mut s.proof_hash),
    ("busy", |s| &mut s.busy),
    ("window", |s| &mut s.window_limited),
    ("buffer", |s| &mut s.buffer_limited),
    ("sent", |s| &mut s.bytes_sent),
    ("resent", |s| &mut s.bytes_resent),
    ("rtt", |s| &mut s.rtt),
    ("rtt_least", |s| &mut s.rtt_least),
    ("mss", |s| &mut s.mss),
    ("channels", |s| &mut s.channels),
    ("delay", |s| &mut s.delay),
    ("proof_delay", |s| &mut s.proof_delay),
    ("hash_cpu", |s| &mut s.hash_cpu),
    ("proof_cpu", |s| &mut s.proof_cpu),
    ("proof_hash_cpu", |s| &mut s.proof_hash_cpu),
];

/// Whether this can be the name of a congestion control: 1 to 15 of `a`-`z`, `0`-`9`, `_` and `-`.
pub fn is_congestion(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    (1..=MAX_CONGESTION).contains(&name.len()) && name.bytes().all(allowed) && name != "-"
}

/// The line without leading space.
pub fn line(spent: &Spent) -> String {
    let mut spent = spent.clone();
    let mut line = "SPENT ".to_owned();
    for (name, field) in FIELDS {
        let value = *field(&mut spent);
        if value != 0 {
            line += &format!("{name}={value};");
        }
    }
    if is_congestion(&spent.congestion) {
        line += &format!("congestion={};", spent.congestion);
    }
    line
}

/// What a reply says; `None` where it says nothing. Names that are not known are passed over.
pub fn from_reply(reply: &Reply) -> Option<Spent> {
    let line = reply.middle_lines().iter().find_map(|line| line.trim_ascii_start().strip_prefix(WORD))?;
    let mut spent = Spent::default();
    for item in line.split(|&b| b == b';') {
        let Some(at) = item.iter().position(|&b| b == b'=') else { continue };
        let (name, value) = (&item[..at], &item[at + 1..]);
        if let Some((_, field)) = FIELDS.iter().find(|(known, _)| known.as_bytes() == name) {
            *field(&mut spent) = parse_u64(value).ok()?;
        } else if name == b"congestion" {
            spent.congestion = String::from_utf8(value.to_vec()).ok().filter(|name| is_congestion(name))?;
        }
    }
    Some(spent)
}

impl Spent {
    /// Adds what another node, or another transfer, spent; times add up, round trips do not.
    pub fn add(&mut self, other: &Self) {
        let (rtt, mss) = (self.rtt.max(other.rtt), self.mss.max(other.mss));
        let least = [self.rtt_least, other.rtt_least].into_iter().filter(|&rtt| rtt > 0).min().unwrap_or(0);
        let mut other = other.clone();
        for (_, field) in FIELDS {
            let value = *field(&mut other);
            let sum = field(self);
            *sum = sum.saturating_add(value);
        }
        (self.rtt, self.rtt_least, self.mss) = (rtt, least, mss);
        if !other.congestion.is_empty() {
            self.congestion = other.congestion;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(lines: &[&str]) -> Reply {
        Reply::multi(226, "Transfer Complete.", lines.iter().map(|l| l.as_bytes().to_vec()), "End")
    }

    #[test]
    fn what_was_spent_survives_the_wire() {
        let spent = Spent { bytes: 7, threads: 9, proof_hash: 2, congestion: "bbr".into(), ..Spent::default() };
        assert_eq!(line(&spent), "SPENT bytes=7;threads=9;proof_hash=2;congestion=bbr;");
        assert_eq!(from_reply(&reply(&["LEAF 0-1 00", &line(&spent)])), Some(spent));
        assert_eq!(from_reply(&reply(&["SPENT later=x;bytes=3"])).map(|s| s.bytes), Some(3));
        for bad in ["SPENT bytes=x;", "SPENT bytes=-1;", "SPENT congestion=a b;"] {
            assert_eq!(from_reply(&reply(&[bad])), None, "{bad}");
        }
        assert_eq!(from_reply(&reply(&[])), None);
    }

    #[test]
    fn parts_add_up_but_round_trips_do_not() {
        let mut sum = Spent { bytes: 1, rtt: 5, rtt_least: 3, mss: 9000, ..Spent::default() };
        sum.add(&Spent { bytes: u64::MAX, rtt: 4, mss: 1448, congestion: "cubic".into(), ..Spent::default() });
        assert_eq!((sum.bytes, sum.rtt, sum.mss, sum.congestion.as_str()), (u64::MAX, 5, 9000, "cubic"));
        assert_eq!(sum.rtt_least, 3, "what is not known is not the least");
        sum.add(&Spent { rtt_least: 2, ..Spent::default() });
        assert_eq!(sum.rtt_least, 2);
    }

    #[test]
    fn names_of_congestion_controls_are_short_words() {
        assert!(is_congestion("bbr") && is_congestion("dctcp-reno"));
        for bad in ["", "-", "BBR", "a b", "0123456789abcdef", "x\r"] {
            assert!(!is_congestion(bad), "{bad}");
        }
    }
}
