//! The administrator's rules for files in chunks (our own): lines ` RULE <what> <path>` of the reply to SITE POLICY.
//!
//! Servers and clients share this page, so that what one writes the other reads.

use serde::{Deserialize, Serialize};

use crate::leaf;
use crate::ranges::parse_u64;
use crate::reply::Reply;

/// Most rules of one reply.
pub const MAX_RULES: usize = 1024;
/// Longest path of a rule, bytes.
pub const MAX_PATH: usize = 4096;
/// Smallest chunk, bytes: below, commands cost more than they bring.
pub const LEAST_CHUNK: u64 = 64 << 10;

const WORD: &[u8] = b"RULE ";

/// What an administrator decides about files; what is `None` is the client's choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Bytes of a chunk, at least [`LEAST_CHUNK`]; 0: files are moved whole.
    pub chunk: Option<u64>,
    /// Bytes of a leaf at the most; a size that leaves can have.
    pub leaf: Option<u64>,
    /// Movers of a copy at the most, and so its sessions; at least 1.
    pub movers: Option<u64>,
}

/// A rule for a directory with all that is below it, or for one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Absolute, as clients see it; `/` is everything.
    pub path: Vec<u8>,
    /// What is decided.
    pub policy: Policy,
}

/// A reply whose rules cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a rule is `RULE name=number;... path` with an absolute path and numbers within their bounds, at most {MAX_RULES} of them"
)]
pub struct PolicyError;

type Field = (&'static str, fn(&mut Policy) -> &mut Option<u64>);

const FIELDS: [Field; 3] = [("chunk", |p| &mut p.chunk), ("leaf", |p| &mut p.leaf), ("movers", |p| &mut p.movers)];

impl Policy {
    /// Whether every number is within its bounds.
    pub fn is_valid(self) -> bool {
        self.chunk.is_none_or(|bytes| bytes == 0 || bytes >= LEAST_CHUNK)
            && self.leaf.is_none_or(leaf::is_size)
            && self.movers.is_none_or(|movers| movers > 0)
    }

    /// What two ends decide together: the smaller number of each.
    pub fn and(mut self, mut other: Self) -> Self {
        for (_, field) in FIELDS {
            let theirs = *field(&mut other);
            let ours = field(&mut self);
            *ours = [*ours, theirs].into_iter().flatten().min();
        }
        self
    }
}

impl Rule {
    /// Whether it is for this path; `.` and `..` are followed as they stand. One that counts from the login's home, which nobody
    /// here knows, is covered by rules for everything only.
    pub fn covers(&self, path: &[u8]) -> bool {
        let below = parts(&self.path);
        below.is_empty() || (path.starts_with(b"/") && parts(path).starts_with(&below))
    }

    /// Whether it can be written on a line and read again.
    pub fn is_valid(&self) -> bool {
        let ends_a_line = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
        self.policy.is_valid()
            && self.path.starts_with(b"/")
            && self.path.len() <= MAX_PATH
            && !self.path.iter().any(ends_a_line)
    }
}

/// Names of a path, from the top.
fn parts(path: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts
}

/// The first rule for a path.
pub fn first<'a>(rules: &'a [Rule], path: &[u8]) -> Option<&'a Rule> {
    rules.iter().find(|rule| rule.covers(path))
}

/// The line of a rule without leading space.
pub fn line(rule: &Rule) -> Vec<u8> {
    let mut policy = rule.policy;
    let mut line = WORD.to_vec();
    for (name, field) in FIELDS {
        if let Some(value) = *field(&mut policy) {
            line.extend_from_slice(format!("{name}={value};").as_bytes());
        }
    }
    if line.len() == WORD.len() {
        line.push(b'-');
    }
    line.push(b' ');
    line.extend_from_slice(&rule.path);
    line
}

/// The rules of a reply, in their order; other lines and names that are not known are passed over.
///
/// # Errors
/// [`PolicyError`]: the first that fits would not be found if one were left out.
pub fn from_reply(reply: &Reply) -> Result<Vec<Rule>, PolicyError> {
    let lines = reply.middle_lines().iter().filter_map(|line| line.strip_prefix(WORD));
    let rules: Vec<Rule> =
        lines.take(MAX_RULES + 1).map(|text| parse(text).ok_or(PolicyError)).collect::<Result<_, _>>()?;
    if rules.len() > MAX_RULES { Err(PolicyError) } else { Ok(rules) }
}

fn parse(text: &[u8]) -> Option<Rule> {
    let space = text.iter().position(|&byte| byte == b' ')?;
    let (what, path) = (&text[..space], &text[space + 1..]);
    let mut policy = Policy::default();
    for item in what.split(|&byte| byte == b';').filter(|item| !item.is_empty() && *item != b"-") {
        let at = item.iter().position(|&byte| byte == b'=')?;
        if let Some((_, field)) = FIELDS.iter().find(|(known, _)| known.as_bytes() == &item[..at]) {
            *field(&mut policy) = Some(parse_u64(&item[at + 1..]).ok()?);
        }
    }
    Some(Rule { path: path.to_vec(), policy }).filter(Rule::is_valid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(path: &str, chunk: Option<u64>, leaf: Option<u64>, movers: Option<u64>) -> Rule {
        Rule { path: path.into(), policy: Policy { chunk, leaf, movers } }
    }

    fn read(lines: &[&str]) -> Result<Vec<Rule>, PolicyError> {
        from_reply(&Reply::multi(250, "Policy.", lines.iter().map(|line| line.as_bytes().to_vec()), "End"))
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        let rules = [
            rule("/a b", Some(0), None, None),
            rule("/", Some(1 << 28), Some(1 << 24), Some(4)),
            rule("/c", None, None, None),
        ];
        let lines: Vec<String> = rules.iter().map(|rule| String::from_utf8(line(rule)).unwrap()).collect();
        assert_eq!(lines, ["RULE chunk=0; /a b", "RULE chunk=268435456;leaf=16777216;movers=4; /", "RULE - /c"]);
        assert_eq!(read(&lines.iter().map(String::as_str).collect::<Vec<_>>()), Ok(rules.to_vec()));
        assert_eq!(read(&["OTHER x", "RULE later=x;chunk=0; /d"]), Ok(vec![rule("/d", Some(0), None, None)]));
    }

    #[test]
    fn a_rule_that_cannot_be_read_spoils_the_reply() {
        for bad in [
            "RULE ",
            "RULE -",
            "RULE - a",
            "RULE chunk /a",
            "RULE chunk=x; /a",
            "RULE chunk=1; /a",
            "RULE leaf=5000; /a",
            "RULE movers=0; /a",
        ] {
            assert_eq!(read(&["RULE - /ok", bad]), Err(PolicyError), "{bad}");
        }
        let many = vec!["RULE - /"; MAX_RULES + 1];
        assert_eq!(read(&many), Err(PolicyError));
        assert!(read(&many[1..]).is_ok());
    }

    #[test]
    fn the_first_rule_that_covers_a_path_counts() {
        let rules =
            [rule("/a/b", Some(0), None, None), rule("/a/", None, None, Some(1)), rule("/a/c", None, None, None)];
        let found =
            |path: &str| first(&rules, path.as_bytes()).map(|rule| String::from_utf8_lossy(&rule.path).into_owned());
        for (path, expected) in [
            ("/a/b", Some("/a/b")),
            ("//a/./b/c", Some("/a/b")),
            ("/a/b/../c", Some("/a/")),
            ("/a/bc", Some("/a/")),
            ("/ab", None),
            ("/", None),
            ("a/b", None),
        ] {
            assert_eq!(found(path).as_deref(), expected, "{path}");
        }
        assert!(rule("/", None, None, None).covers(b"/x") && rule("/", None, None, None).covers(b"x"));
    }

    #[test]
    fn two_ends_together_decide_the_smaller_numbers() {
        let policy = |chunk, leaf, movers| Policy { chunk, leaf, movers };
        let both = policy(Some(1 << 20), None, Some(3)).and(policy(Some(0), Some(4096), Some(7)));
        assert_eq!(both, policy(Some(0), Some(4096), Some(3)));
    }

    proptest! {
        #[test]
        fn any_rule_survives_the_wire(path in "/[^\r\n\0]{0,30}", chunk in proptest::option::of(LEAST_CHUNK..u64::MAX), shift in 12u32..=30, movers: Option<u32>) {
            let movers = movers.map(|movers| u64::from(movers) + 1);
            let rule = Rule { path: path.into_bytes(), policy: Policy { chunk, leaf: Some(1 << shift), movers } };
            let reply = Reply::multi(250, "x", [line(&rule)], "End");
            prop_assert_eq!(from_reply(&reply), Ok(vec![rule]));
        }

        #[test]
        fn reading_any_line_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = from_reply(&Reply::multi(250, "x", [[WORD, &bytes].concat()], "End"));
        }
    }
}
