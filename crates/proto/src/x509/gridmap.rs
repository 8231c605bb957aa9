//! Grid-mapfiles: which accounts a certificate's subject may use.
//!
//! ```text
//! # the subject in quotes, then its accounts; the first is the usual one
//! "/O=Grid/CN=Alice Example" alice,shared
//! /O=Grid/CN=bob             bob
//! ```
//!
//! There are no patterns: a star is a star. Of several lines for one subject the first counts.

use std::collections::BTreeMap;

use super::name::{normal_form, print};

/// Why a line maps nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// A quote is opened and not closed.
    #[error("the quote has no end")]
    Quote,
    /// A subject without accounts.
    #[error("no account follows the subject")]
    NoAccount,
    /// An account that is not UTF-8, or has control characters.
    #[error("the account is not a name")]
    Account,
}

/// The mapped subjects of a file, and its faulty lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GridMap {
    accounts: BTreeMap<String, Vec<String>>,
    faults: Vec<(usize, LineFault)>,
}

impl GridMap {
    /// Reads a file; a faulty line maps nobody and leaves the others in force.
    pub fn parse(file: &[u8]) -> Self {
        let mut map = Self::default();
        for (number, line) in file.split(|&byte| byte == b'\n').enumerate() {
            match entry(line) {
                Ok(Some((subject, accounts))) => {
                    map.accounts.entry(normal_form(&subject)).or_insert(accounts);
                }
                Ok(None) => {}
                Err(fault) => map.faults.push((number + 1, fault)),
            }
        }
        map
    }

    /// The accounts of a subject in one-line form, the usual one first; empty: nobody here.
    pub fn accounts(&self, subject: &str) -> &[String] {
        self.accounts.get(&normal_form(subject)).map_or(&[], Vec::as_slice)
    }

    /// Lines, from 1, that could not be read.
    pub fn faults(&self) -> &[(usize, LineFault)] {
        &self.faults
    }

    /// How many subjects are mapped.
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// True if nobody is mapped.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }
}

/// The subject and accounts of a line; `None` for an empty line or a comment.
fn entry(line: &[u8]) -> Result<Option<(String, Vec<String>)>, LineFault> {
    let line = line.trim_ascii();
    let (subject, rest) = match line {
        [] | [b'#', ..] => return Ok(None),
        [b'"', quoted @ ..] => {
            let end = closing(quoted).ok_or(LineFault::Quote)?;
            (&quoted[..end], &quoted[end + 1..])
        }
        _ => {
            let end = line.iter().position(u8::is_ascii_whitespace).ok_or(LineFault::NoAccount)?;
            line.split_at(end)
        }
    };
    let rest = std::str::from_utf8(rest).map_err(|_| LineFault::Account)?;
    let names = rest.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|name| !name.is_empty());
    let accounts: Vec<String> = names.map(str::to_owned).collect();
    if accounts.iter().any(|name| name.chars().any(char::is_control)) {
        return Err(LineFault::Account);
    }
    if accounts.is_empty() { Err(LineFault::NoAccount) } else { Ok(Some((unescaped(subject), accounts))) }
}

/// Where the first quote without a `\` before it is.
fn closing(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|&byte| {
        let end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        end
    })
}

/// The one-line form of a subject: `\xHH` is that byte, `\` before anything else is dropped.
fn unescaped(subject: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(subject.len());
    let mut rest = subject;
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'\\', [b'x', high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                bytes.push(digit(*high) << 4 | digit(*low));
                rest = after;
            }
            (b'\\', [next, after @ ..]) => {
                bytes.push(*next);
                rest = after;
            }
            (b'\\', []) => {}
            _ => bytes.push(*first),
        }
    }
    let mut line = String::new();
    print(&bytes, &mut line);
    line
}

fn digit(character: u8) -> u8 {
    char::from(character).to_digit(16).map_or(0, |digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_accounts() {
        let map = GridMap::parse(
            b"# a comment\n\n\"/O=Grid/CN=Alice Example\" alice,shared , extra\n/O=Grid/CN=bob\tbob\r\n  \"/O=Grid/UID=c\" carol\n",
        );
        assert_eq!(map.accounts("/O=Grid/CN=Alice Example"), ["alice", "shared", "extra"]);
        assert_eq!(map.accounts("/o=grid/cn=ALICE example"), ["alice", "shared", "extra"]);
        assert_eq!(map.accounts("/O=Grid/CN=bob"), ["bob"]);
        assert_eq!(map.accounts("/O=Grid/USERID=c"), ["carol"]);
        assert!(map.accounts("/O=Grid/CN=bobby").is_empty() && map.accounts("").is_empty());
        assert_eq!((map.len(), map.is_empty(), map.faults()), (3, false, &[][..]));
    }

    #[test]
    fn escapes_mean_bytes() {
        let map = GridMap::parse(
            b"\"/CN=say \\\"hi\\\"\" one\n\"/CN=J\\xc3\\xbcrg\" two\n\"/CN=caf\xc3\xa9\" three\n\"/CN=back\\\\\" four\n/CN=a\\ b five\n\"/CN=\\x4z\\x41\" six\n",
        );
        assert_eq!(map.accounts("/CN=say \"hi\""), ["one"]);
        assert_eq!(map.accounts(r"/CN=J\xC3\xBCrg"), ["two"]);
        assert_eq!(map.accounts(r"/CN=caf\xC3\xA9"), ["three"]);
        assert_eq!(map.accounts(r"/CN=back\"), ["four"]);
        assert_eq!(map.accounts(r"/CN=a"), ["b", "five"]);
        assert_eq!(map.accounts("/CN=x4zA"), ["six"]);
    }

    #[test]
    fn slashes_in_values_are_found_however_they_are_written() {
        // By OpenSSL before 3.0, by 3.0 in a grid-mapfile, and by 3.0 as a subject.
        for line in
            [&b"\"/O=Grid/CN=host/a.b\" h"[..], b"\"/O=Grid/CN=host\\\\/a.b\" h", b"\"/O=Grid/CN=host\\/a.b\" h"]
        {
            let map = GridMap::parse(line);
            assert_eq!(map.accounts("/O=Grid/CN=host/a.b"), ["h"]);
            assert_eq!(map.accounts(r"/O=Grid/CN=host\/a.b"), ["h"]);
        }
        let map = GridMap::parse(b"/CN=foo/O=bar two\n/CN=foo\\\\/O=bar one\n");
        assert_eq!(
            (map.accounts("/CN=foo/O=bar"), map.accounts(r"/CN=foo\/O=bar")),
            (&["two".into()][..], &["one".into()][..])
        );
    }

    #[test]
    fn a_star_is_a_star_and_the_first_line_counts() {
        let map = GridMap::parse(b"\"/O=Grid/*\" any\n\"/O=Grid/CN=x\" first\n\"/O=grid/CN=X\" second\n");
        assert!(map.accounts("/O=Grid/CN=y").is_empty());
        assert_eq!(map.accounts("/O=Grid/*"), ["any"]);
        assert_eq!(map.accounts("/O=Grid/CN=x"), ["first"]);
    }

    #[test]
    fn faulty_lines_map_nobody_and_are_told() {
        let map = GridMap::parse(b"\"/CN=open alice\n/CN=nobody\n\"/CN=x\" ,\n\"/CN=y\" a\x1bb\n\"/CN=z\" \xff\n\"/CN=end\\\" a\n\"/CN=ok\" ok");
        assert_eq!(
            map.faults(),
            [
                (1, LineFault::Quote),
                (2, LineFault::NoAccount),
                (3, LineFault::NoAccount),
                (4, LineFault::Account),
                (5, LineFault::Account),
                (6, LineFault::Quote),
            ]
        );
        assert_eq!((map.len(), map.accounts("/CN=ok")), (1, &["ok".to_owned()][..]));
        assert!(GridMap::parse(b"").is_empty());
    }
}
