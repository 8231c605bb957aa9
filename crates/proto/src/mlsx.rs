//! Machine listings: facts and names of MLST, MLSD, MLSC and MLSR (RFC 3659 §7).

use serde::{Deserialize, Serialize};

use crate::ranges::parse_u64;
use crate::reply::Reply;
use crate::timeval::Timestamp;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// `file`.
    File,
    /// `dir`.
    Dir,
    /// `cdir`: the listed directory.
    Current,
    /// `pdir`: the one above.
    Parent,
    /// `slink`, and other servers' `OS.unix=slink:target`.
    Symlink,
    /// `OS.unix=chr`, `blk`, `pipe`, `other`, or any other value, as sent.
    Other(String),
}

impl EntryKind {
    fn word(&self) -> &str {
        match self {
            Self::File => "file",
            Self::Dir => "dir",
            Self::Current => "cdir",
            Self::Parent => "pdir",
            Self::Symlink => "slink",
            Self::Other(word) => word,
        }
    }

    fn from_word(word: &str) -> Self {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "file" => Self::File,
            "dir" => Self::Dir,
            "cdir" => Self::Current,
            "pdir" => Self::Parent,
            _ if lower == "slink" || lower.starts_with("os.unix=slink") || lower.starts_with("os.unix=symlink") => {
                Self::Symlink
            }
            _ => Self::Other(word.to_owned()),
        }
    }
}

/// One entry; a fact that was not sent is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are the facts of RFC 3659 §7.5 and of the reference server")]
pub struct Entry {
    /// Bytes after the facts: a name, or for MLST and MLSR a path.
    pub name: Vec<u8>,
    pub kind: Option<EntryKind>,
    pub modify: Option<Timestamp>,
    /// Bytes.
    pub size: Option<u64>,
    pub perm: Option<String>,
    /// Permission bits.
    pub mode: Option<u32>,
    pub owner: Option<Vec<u8>>,
    pub uid: Option<u32>,
    pub group: Option<Vec<u8>>,
    pub gid: Option<u32>,
    pub unique: Option<String>,
    /// Decoded target of a link; the reference server sends the absolute resolved one.
    pub slink: Option<Vec<u8>>,
    /// Decoded text of a link, where it is not [`Entry::slink`]: a relative one, which goes on to work where a tree is copied to.
    pub link_text: Option<Vec<u8>>,
    /// Entries of the directory, `.` and `..` included.
    pub xcount: Option<u64>,
    pub charset: Option<String>,
    /// MLSR: why this entry could not be read (`OpenFailed`, `InvalidLink`).
    pub error: Option<String>,
}

/// A fact, in the order in which lines carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "variants are the facts")]
pub enum Fact {
    Type,
    Modify,
    Size,
    Perm,
    Charset,
    Mode,
    Owner,
    Uid,
    Group,
    Gid,
    Unique,
    Slink,
    Count,
    Error,
    Nanos,
    LinkText,
}

impl Fact {
    /// All facts with their wire names.
    pub const ALL: [(Self, &'static str); 16] = [
        (Self::Type, "Type"),
        (Self::Modify, "Modify"),
        (Self::Size, "Size"),
        (Self::Perm, "Perm"),
        (Self::Charset, "Charset"),
        (Self::Mode, "UNIX.mode"),
        (Self::Owner, "UNIX.owner"),
        (Self::Uid, "UNIX.uid"),
        (Self::Group, "UNIX.group"),
        (Self::Gid, "UNIX.gid"),
        (Self::Unique, "Unique"),
        (Self::Slink, "UNIX.slink"),
        (Self::Count, "X.count"),
        (Self::Error, "Error"),
        (Self::Nanos, "X.nanos"),
        (Self::LinkText, "X.link"),
    ];

    /// The fact of a wire name, letter case ignored (RFC 3659 §7.5); some servers call a directory's size `Sizd`.
    pub fn from_name(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("Sizd") {
            return Some(Self::Size);
        }
        Self::ALL.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(fact, _)| *fact)
    }
}

/// A set of facts to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactSet(u16);

impl Default for FactSet {
    /// All but Charset.
    fn default() -> Self {
        Self::all().without(Fact::Charset)
    }
}

impl FactSet {
    /// Every fact.
    pub fn all() -> Self {
        Self(Fact::ALL.iter().fold(0, |bits, (fact, _)| bits | 1 << *fact as u16))
    }

    /// No fact but errors, which are always sent.
    pub fn none() -> Self {
        Self(1 << Fact::Error as u16)
    }

    /// The facts of these names; unknown ones are ignored (RFC 3659 §7.9).
    pub fn from_names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        names.into_iter().filter_map(|n| Fact::from_name(n.as_ref())).fold(Self::none(), Self::with)
    }

    /// With this fact.
    pub fn with(self, fact: Fact) -> Self {
        Self(self.0 | 1 << fact as u16)
    }

    /// Without this fact.
    pub fn without(self, fact: Fact) -> Self {
        Self(self.0 & !(1 << fact as u16))
    }

    /// True if it is in the set.
    pub fn contains(self, fact: Fact) -> bool {
        self.0 & (1 << fact as u16) != 0
    }
}

/// Why a line is no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MlsxError {
    /// No space between facts and name (RFC 3659 §7.2), or no name.
    #[error("the listing line has no space before the name, or no name")]
    NoName,
    /// A fact without `=`.
    #[error("the listing line has a fact without a value")]
    BadFact,
    /// The reply does not carry exactly one entry.
    #[error("the reply does not describe one entry")]
    BadReply,
}

/// True if the name can stand on a listing line: no CR, LF or NUL, for which no escape exists, and not empty.
pub fn name_is_safe_on_a_line(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|b| matches!(b, b'\r' | b'\n' | 0))
}

impl Entry {
    /// True for directories, `cdir` and `pdir` included.
    pub fn is_dir(&self) -> bool {
        matches!(self.kind, Some(EntryKind::Dir | EntryKind::Current | EntryKind::Parent))
    }

    /// True for the entries of the listed directory itself and the one above.
    pub fn is_dot(&self) -> bool {
        matches!(self.kind, Some(EntryKind::Current | EntryKind::Parent)) || self.name == b"." || self.name == b".."
    }

    /// Appends `fact=value;… name` without line end.
    ///
    /// # Errors
    /// [`MlsxError::NoName`], leaving `out` as it was, if the name is not [safe](name_is_safe_on_a_line).
    pub fn encode(&self, facts: FactSet, out: &mut Vec<u8>) -> Result<(), MlsxError> {
        if !name_is_safe_on_a_line(&self.name) {
            return Err(MlsxError::NoName);
        }
        for (fact, name) in Fact::ALL.iter().filter(|(fact, _)| facts.contains(*fact)) {
            if let Some(value) = self.value(*fact) {
                out.extend_from_slice(name.as_bytes());
                out.push(b'=');
                // A `;` or a line end in an owner's name would break the line.
                out.extend(value.into_iter().filter(|b| !matches!(b, b';' | b'\r' | b'\n' | b' ' | 0)));
                out.push(b';');
            }
        }
        out.push(b' ');
        out.extend_from_slice(&self.name);
        Ok(())
    }

    fn value(&self, fact: Fact) -> Option<Vec<u8>> {
        let text = match fact {
            Fact::Type => self.kind.as_ref().map(|k| k.word().to_owned()),
            Fact::Modify => self.modify.map(|t| t.to_wire()),
            // A fact of its own: not every client reads the fraction that RFC 3659 §2.3 allows in `Modify`.
            Fact::Nanos => self.modify.filter(|t| t.nanos > 0).map(|t| t.nanos.to_string()),
            Fact::Size => self.size.map(|n| n.to_string()),
            Fact::Perm => self.perm.clone(),
            Fact::Charset => self.charset.clone(),
            Fact::Mode => self.mode.map(|m| format!("{m:04o}")),
            Fact::Uid => self.uid.map(|n| n.to_string()),
            Fact::Gid => self.gid.map(|n| n.to_string()),
            Fact::Unique => self.unique.clone(),
            Fact::Count => self.xcount.map(|n| n.to_string()),
            Fact::Error => self.error.clone(),
            Fact::Owner => return self.owner.clone(),
            Fact::Group => return self.group.clone(),
            Fact::Slink => return self.slink.as_deref().map(percent_encode),
            Fact::LinkText => return self.link_text.as_deref().map(percent_encode),
        };
        text.map(String::into_bytes)
    }

    /// Parses `fact=value;… name`; a leading space before the facts (MLST) and a trailing CR are tolerated.
    ///
    /// RFC 3659 §7.2: "the space that separates the facts from the pathname" is the first one of the line. Unknown facts are skipped, letter
    /// case and order do not matter, a missing last `;` is tolerated. A value that cannot be read counts as not sent: the entry is there all
    /// the same, and a copy must not leave it out.
    pub fn parse(line: &[u8]) -> Result<Self, MlsxError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = if is_indented(line) { &line[1..] } else { line };
        let space = line.iter().position(|&b| b == b' ').ok_or(MlsxError::NoName)?;
        let mut entry = Self { name: line[space + 1..].to_vec(), ..Self::default() };
        if entry.name.is_empty() {
            return Err(MlsxError::NoName);
        }
        let mut nanos = None;
        for item in line[..space].split(|&b| b == b';').filter(|item| !item.is_empty()) {
            let at = item.iter().position(|&b| b == b'=').ok_or(MlsxError::BadFact)?;
            let (name, value) = (String::from_utf8_lossy(&item[..at]), &item[at + 1..]);
            match Fact::from_name(&name) {
                Some(Fact::Nanos) => nanos = parse_u64(value).ok().and_then(|n| u32::try_from(n).ok()),
                Some(fact) => entry.take(fact, value),
                None => {}
            }
        }
        if let (Some(modify), Some(nanos)) = (&mut entry.modify, nanos.filter(|nanos| *nanos < 1_000_000_000)) {
            modify.nanos = nanos;
        }
        Ok(entry)
    }

    fn take(&mut self, fact: Fact, value: &[u8]) {
        let text = || String::from_utf8_lossy(value).into_owned();
        match fact {
            Fact::Type => self.take_kind(&text()),
            Fact::Modify => self.modify = Timestamp::parse(value).ok(),
            Fact::Size => self.size = text().parse().ok(),
            Fact::Mode => self.mode = u32::from_str_radix(&text(), 8).ok(),
            Fact::Perm => self.perm = Some(text()),
            Fact::Charset => self.charset = Some(text()),
            Fact::Unique => self.unique = Some(text()),
            Fact::Error => self.error = Some(text()),
            Fact::Owner => self.owner = Some(value.to_vec()),
            Fact::Group => self.group = Some(value.to_vec()),
            Fact::Slink => self.slink = Some(percent_decode(value)),
            Fact::LinkText => self.link_text = Some(percent_decode(value)),
            // Some servers send names here.
            Fact::Uid => self.uid = text().parse().ok(),
            Fact::Gid => self.gid = text().parse().ok(),
            Fact::Count => self.xcount = text().parse().ok(),
            // Taken together with the time it belongs to.
            Fact::Nanos => {}
        }
    }

    fn take_kind(&mut self, word: &str) {
        let kind = EntryKind::from_word(word);
        if kind == EntryKind::Symlink
            && let Some((_, target)) = word.split_once(':')
        {
            self.slink.get_or_insert_with(|| target.as_bytes().to_vec());
        }
        self.kind = Some(kind);
    }
}

/// A line without facts starts with the separator; MLST puts an indent before facts or before that separator.
fn is_indented(line: &[u8]) -> bool {
    let Some(after) = line.strip_prefix(b" ") else { return false };
    match after.iter().position(|&b| b == b' ') {
        Some(at) => at == 0 || after[..at].contains(&b'='),
        None => false,
    }
}

/// Percent-encodes everything but letters, digits and `/._-~+:@,`.
pub fn percent_encode(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for &b in bytes {
        if b.is_ascii_alphanumeric() || b"/._-~+:@,".contains(&b) {
            out.push(b);
        } else {
            out.extend_from_slice(format!("%{b:02X}").as_bytes());
        }
    }
    out
}

/// Decodes `%XX`; a `%` that starts no escape stays.
pub fn percent_decode(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|&b| char::from(b).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// The reply to MLST: `250-status of P`, one indented line, `250 End.`
pub fn mlst_reply(asked: &[u8], line: Vec<u8>) -> Reply {
    let first = [b"status of ", asked].concat();
    Reply { code: 250, lines: vec![first, line, b"End.".to_vec()] }
}

/// The entry of an MLST reply (RFC 3659 §7.2): exactly one middle line.
pub fn parse_mlst(reply: &Reply) -> Result<Entry, MlsxError> {
    match (reply.code, reply.middle_lines()) {
        (250, [line]) => Entry::parse_unindented(line),
        _ => Err(MlsxError::BadReply),
    }
}

/// The entries of an MLSC reply: 250, or one of the 150 parts that come first for a big directory.
pub fn parse_mlsc(reply: &Reply) -> Result<Vec<Entry>, MlsxError> {
    match reply.code {
        250 | 150 => reply.middle_lines().iter().map(|line| Entry::parse_unindented(line)).collect(),
        _ => Err(MlsxError::BadReply),
    }
}

impl Entry {
    /// A line whose indent the reply parser already took: a leading space here is the separator.
    fn parse_unindented(line: &[u8]) -> Result<Self, MlsxError> {
        match line.strip_prefix(b" ") {
            Some(b"") => Err(MlsxError::NoName),
            Some(name) => Ok(Self { name: name.to_vec(), ..Self::default() }),
            None => Self::parse(line),
        }
    }
}

/// Cuts the data of MLSD or MLSR into entries; empty lines are skipped, CRLF, LF and CR CR LF (a TYPE A quirk) end a line.
///
/// RFC 3659 §7.2: only MLST's line is indented, so a leading space here is the separator of a line without facts.
pub fn parse_listing(data: &[u8]) -> impl Iterator<Item = Result<Entry, MlsxError>> {
    let trimmed = data.split(|&b| b == b'\n').map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    });
    trimmed.filter(|line| !line.is_empty()).map(Entry::parse_unindented)
}

#[cfg(test)]
#[path = "mlsx_tests.rs"]
mod tests;
