//! SITE: commands of the GridFTP servers and our own.

use serde::{Deserialize, Serialize};

use super::args::{CommandError, first_word, optional, path, splitn, syntax, time, unsigned};
use super::{Chunk, EncodeError, Secret, SiteProbe, WirePath, chunk, probe};
use crate::leaf;
use crate::op::LeafSpec;
use crate::relay::{Announcement, MOST_CONNECTIONS, MOST_SECONDS, Part, Token};
use crate::timeval::Timestamp;

/// Which socket buffer a command sets, seen from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BufferSide {
    /// For RETR.
    Send,
    /// For STOR.
    Receive,
    /// Both.
    Both,
}

/// Spellings of the buffer-size command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the spellings themselves")]
pub enum BufferVerb {
    RetrBufSize,
    RBufSz,
    RBufSiz,
    StorBufSize,
    SBufSz,
    SBufSiz,
    BufSize,
}

impl BufferVerb {
    /// All spellings with their words.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::RetrBufSize, "RETRBUFSIZE"),
        (Self::RBufSz, "RBUFSZ"),
        (Self::RBufSiz, "RBUFSIZ"),
        (Self::StorBufSize, "STORBUFSIZE"),
        (Self::SBufSz, "SBUFSZ"),
        (Self::SBufSiz, "SBUFSIZ"),
        (Self::BufSize, "BUFSIZE"),
    ];

    /// The buffer it sets.
    pub fn side(self) -> BufferSide {
        match self {
            Self::RetrBufSize | Self::RBufSz | Self::RBufSiz => BufferSide::Send,
            Self::StorBufSize | Self::SBufSz | Self::SBufSiz => BufferSide::Receive,
            Self::BufSize => BufferSide::Both,
        }
    }

    /// The word on the wire.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(verb, _)| *verb == self).map_or("BUFSIZE", |(_, word)| word)
    }
}

/// A SITE command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "variants are the words")]
pub enum Site {
    Help(Option<Vec<u8>>),
    /// `mode` at most `0o7777`.
    Chmod {
        mode: u32,
        path: WirePath,
    },
    Chgrp {
        group: Vec<u8>,
        path: WirePath,
    },
    /// `SITE SYMLINK target link`: the target ends at the first space.
    Symlink {
        target: WirePath,
        link: WirePath,
    },
    SymlinkFrom(WirePath),
    SymlinkTo(WirePath),
    /// `SITE UTIME time path`, or lftp's `SITE UTIME path atime mtime ctime UTC`.
    Utime {
        modify: Timestamp,
        path: WirePath,
    },
    Rdel(WirePath),
    Trnc {
        length: u64,
        path: WirePath,
    },
    /// `scheme=ftp;appname="…";…`
    ClientInfo(Vec<(String, Vec<u8>)>),
    TaskId(Vec<u8>),
    /// `modify=…;UNIX.mode=…;checksum.md5=…;x.any=…;` for the next STOR.
    StorAttr(Vec<(String, Vec<u8>)>),
    WhoAmI,
    Version,
    BufferSize {
        verb: BufferVerb,
        bytes: u64,
    },
    SetNetStack(Vec<u8>),
    SetDiskStack(Vec<u8>),
    Dsi(Vec<u8>),
    Upas(Vec<u8>),
    Uprt(Vec<u8>),
    Http(Vec<u8>),
    Sharing(Vec<u8>),
    Restrict(Vec<u8>),
    Chroot(WirePath),
    AuthzAssert(Vec<u8>),
    Fault(Vec<u8>),
    /// Our own: 16 bytes in hex that data connections of the next handle must present.
    DcNonce(Nonce),
    /// Our own: joins connections of two other servers that say this token.
    Relay(Announcement),
    /// Our own: the next PORT names a relay, where this server takes this part.
    DcRelay(Part),
    /// Our own: digests in the final replies of transfers from now on; `None` ends it.
    Leaves(Option<LeafSpec>),
    /// Our own: which leaves of a file are holes.
    Extents {
        leaf: u64,
        path: WirePath,
    },
    /// Our own: files written in chunks.
    Chunk(Chunk),
    /// Our own: whether leaves of what is stored are read back past the host's memory from now on.
    ReadBack {
        disk: bool,
    },
    /// Our own: measuring storage, describing the host.
    Probe(SiteProbe),
    /// Our own: congestion control of the next data handles; `None`: the system's.
    Congestion(Option<String>),
    /// Our own: the administrator's rules for files in chunks.
    Policy,
    /// Our own: where the time went, in the final replies of transfers from now on.
    Spent(bool),
    /// Our own: whether whole files and packs that are stored survive a crash before they are answered, from now on.
    Durable(bool),
    /// Our own: everything that was stored so far on the storage of this directory survives a crash.
    Sync(WirePath),
    Unknown {
        verb: Vec<u8>,
        args: Vec<u8>,
    },
}

/// A one-time secret of a data handle; `Debug` hides it.
pub type Nonce = Secret;

const VERB: &str = "SITE";

/// Parses what follows `SITE `.
pub(super) fn parse(args: &[u8]) -> Result<Site, CommandError> {
    let (word, rest) = first_word(args);
    let upper = word.to_ascii_uppercase();
    if let Some((verb, _)) = BufferVerb::ALL.iter().find(|(_, w)| w.as_bytes() == upper) {
        return Ok(Site::BufferSize { verb: *verb, bytes: unsigned(VERB, rest.unwrap_or(b"").trim_ascii())? });
    }
    match upper.as_slice() {
        b"" => Err(syntax(VERB, "a subcommand is missing")),
        b"HELP" => Ok(Site::Help(optional(rest))),
        b"WHOAMI" => Ok(Site::WhoAmI),
        b"VERSION" => Ok(Site::Version),
        b"POLICY" => Ok(Site::Policy),
        b"CHMOD" => chmod(rest),
        b"UTIME" => utime(rest),
        b"CHGRP" => two(rest).map(|(group, path)| Site::Chgrp { group, path }),
        b"SYMLINK" => two(rest).map(|(target, link)| Site::Symlink { target, link }),
        b"TRNC" => {
            let (length, path) = two(rest)?;
            Ok(Site::Trnc { length: unsigned(VERB, &length)?, path })
        }
        b"SYMLINKFROM" => path(VERB, rest).map(Site::SymlinkFrom),
        b"SYMLINKTO" => path(VERB, rest).map(Site::SymlinkTo),
        b"RDEL" => path(VERB, rest).map(Site::Rdel),
        b"SYNC" => path(VERB, rest).map(Site::Sync),
        b"CHROOT" => path(VERB, rest).map(Site::Chroot),
        b"DCNONCE" => nonce(rest),
        b"RELAY" => announcement(rest),
        b"DCRELAY" => part(rest),
        b"LEAVES" => chunk::leaves(rest),
        b"CHUNK" => chunk::parse(rest),
        b"READBACK" => read_back(rest),
        b"EXTENTS" => chunk::extents(rest),
        b"PROBE" => probe::parse(rest),
        b"CONGESTION" => probe::congestion(rest),
        b"SPENT" => switch(rest, "SPENT is 1 or 0").map(Site::Spent),
        b"DURABLE" => switch(rest, "DURABLE is 1 or 0").map(Site::Durable),
        _ => Ok(text_command(upper, rest.unwrap_or(b""))),
    }
}

/// Subcommands whose arguments stay text.
fn text_command(upper: Vec<u8>, args: &[u8]) -> Site {
    let text = args.to_vec();
    match upper.as_slice() {
        b"CLIENTINFO" => Site::ClientInfo(split_pairs(args)),
        b"STORATTR" => Site::StorAttr(split_pairs(args)),
        b"TASKID" => Site::TaskId(text),
        b"SETNETSTACK" => Site::SetNetStack(text),
        b"SETDISKSTACK" => Site::SetDiskStack(text),
        b"DSI" => Site::Dsi(text),
        b"UPAS" => Site::Upas(text),
        b"UPRT" => Site::Uprt(text),
        b"HTTP" => Site::Http(text),
        b"SHARING" => Site::Sharing(text),
        b"RESTRICT" => Site::Restrict(text),
        b"AUTHZ_ASSERT" => Site::AuthzAssert(text),
        b"FAULT" => Site::Fault(text),
        _ => Site::Unknown { verb: upper, args: text },
    }
}

fn two(rest: Option<&[u8]>) -> Result<(Vec<u8>, WirePath), CommandError> {
    let [first, last] = splitn(VERB, rest)?;
    Ok((first.to_vec(), path(VERB, Some(last))?))
}

/// The reference server reads a non-octal mode as 0; here it is refused.
fn chmod(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    let (mode, path) = two(rest)?;
    let mode = octal_mode(&mode).ok_or(syntax(VERB, "the mode is not octal"))?;
    Ok(Site::Chmod { mode, path })
}

/// Permission bits as SITE CHMOD and the fact `UNIX.mode` have them: one to five octal digits, 7777 at most.
pub(crate) fn octal_mode(text: &[u8]) -> Option<u32> {
    let octal = (1..=5).contains(&text.len()) && text.iter().all(|b| (b'0'..=b'7').contains(b));
    let value = text.iter().filter(|_| octal).fold(0, |n, &b| n * 8 + u32::from(b - b'0'));
    (octal && value <= 0o7777).then_some(value)
}

fn utime(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    let (first, last) = two(rest)?;
    // Everyday clients may leave the seconds out: YYYYMMDDhhmm.
    let padded = if first.len() == 12 { [first.as_slice(), b"00"].concat() } else { first };
    if let Ok(modify) = time(VERB, &padded) {
        return Ok(Site::Utime { modify, path: last });
    }
    utime_of_lftp(rest.unwrap_or(b"")).ok_or(syntax(VERB, "UTIME is YYYYMMDDHHMMSS path"))
}

/// `path atime mtime ctime UTC`, read from the end because the path may hold spaces.
fn utime_of_lftp(text: &[u8]) -> Option<Site> {
    let mut words = text.rsplitn(5, |&b| b == b' ');
    let (zone, _change, modify, _access) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let path = path(VERB, words.next()).ok()?;
    let modify = Timestamp::parse(modify).ok().filter(|_| zone.eq_ignore_ascii_case(b"UTC"))?;
    Some(Site::Utime { modify, path })
}

fn nonce(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    match unhex(rest.unwrap_or(b"").trim_ascii()) {
        Some(bytes) if bytes.len() == 16 => Ok(Site::DcNonce(Secret(bytes))),
        _ => Err(syntax(VERB, "DCNONCE is 32 hexadecimal digits")),
    }
}

fn unhex(hex: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    hex.chunks(2).map(|c| Some(digit(c[0])? << 4 | digit(*c.get(1)?)?)).collect()
}

/// `token connections seconds`.
fn announcement(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    let wrong = || syntax(VERB, "RELAY is 64 hexadecimal digits, 1 to 256 connections and 1 to 3600 seconds");
    let words: Vec<_> = rest.unwrap_or(b"").trim_ascii().split(|&b| b == b' ').collect();
    let &[token, connections, seconds] = &words[..] else { return Err(wrong()) };
    let token = unhex(token).and_then(|bytes| Token::try_from(bytes).ok());
    let within = |text: &[u8], most: u64| unsigned(VERB, text).ok().filter(|number| (1..=most).contains(number));
    let connections = within(connections, MOST_CONNECTIONS.into()).and_then(|number| u16::try_from(number).ok());
    let seconds = within(seconds, MOST_SECONDS.into()).and_then(|number| u32::try_from(number).ok());
    match (token, connections, seconds) {
        (Some(token), Some(connections), Some(seconds)) => {
            Ok(Site::Relay(Announcement { token, connections, seconds }))
        }
        _ => Err(wrong()),
    }
}

/// `CLIENT` or `SERVER`.
fn part(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    let word = rest.unwrap_or(b"").trim_ascii();
    let known = Part::ALL.into_iter().find(|part| word.eq_ignore_ascii_case(part.word().as_bytes()));
    known.map(Site::DcRelay).ok_or(syntax(VERB, "DCRELAY is CLIENT or SERVER"))
}

/// 1 or 0.
fn switch(rest: Option<&[u8]>, wanted: &'static str) -> Result<bool, CommandError> {
    match rest.unwrap_or(b"").trim_ascii() {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(syntax(VERB, wanted)),
    }
}

/// `DISK` or `MEMORY`.
fn read_back(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    match rest.unwrap_or(b"").trim_ascii().to_ascii_uppercase().as_slice() {
        b"DISK" => Ok(Site::ReadBack { disk: true }),
        b"MEMORY" => Ok(Site::ReadBack { disk: false }),
        _ => Err(syntax(VERB, "READBACK is DISK or MEMORY")),
    }
}

/// Splits `key=value;key="a;b";` into pairs; keys keep their case, a key without `=` has an empty value.
pub fn split_pairs(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut quoted = false;
        let end = rest.iter().position(|&b| {
            quoted ^= b == b'"';
            b == b';' && !quoted
        });
        let item = rest[..end.unwrap_or(rest.len())].trim_ascii();
        rest = end.map_or(b"", |end| &rest[end + 1..]);
        if item.is_empty() {
            continue;
        }
        let at = item.iter().position(|&b| b == b'=').unwrap_or(item.len());
        let value = item.get(at + 1..).unwrap_or(b"");
        let inner = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
        pairs.push((String::from_utf8_lossy(&item[..at]).into_owned(), inner.to_vec()));
    }
    pairs
}

/// Writes `key=value;`, quoting values that hold anything but letters, digits and `._+/:-`; quotes inside are dropped.
pub fn quote_pairs(pairs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in pairs {
        let plain = value.iter().all(|b| b.is_ascii_alphanumeric() || b"._+/:-".contains(b));
        let quote: &[u8] = if plain { b"" } else { b"\"" };
        let value: Vec<u8> = value.iter().copied().filter(|&b| b != b'"').collect();
        out.extend_from_slice(&[key.as_bytes(), b"=", quote, &value, quote, b";"].concat());
    }
    out
}

/// The text after `SITE `.
pub(super) fn format(site: &Site) -> Result<Vec<u8>, EncodeError> {
    let join = |word: &[u8], args: &[u8]| {
        let separator: &[u8] = if args.is_empty() { b"" } else { b" " };
        [word, separator, args].concat()
    };
    let with = |word: &str, args: &[u8]| join(word.as_bytes(), args);
    let pair = |word: &str, first: &[u8], last: &[u8]| [word.as_bytes(), b" ", first, b" ", last].concat();
    Ok(match site {
        Site::Help(arg) => with("HELP", arg.as_deref().unwrap_or(b"")),
        Site::Chmod { mode, path } => pair("CHMOD", format!("{mode:03o}").as_bytes(), path),
        Site::Chgrp { group, path } => pair("CHGRP", group, path),
        Site::Symlink { target, link } => pair("SYMLINK", target, link),
        Site::SymlinkFrom(path) => with("SYMLINKFROM", path),
        Site::SymlinkTo(path) => with("SYMLINKTO", path),
        Site::Utime { modify, path } => pair("UTIME", modify.to_string().as_bytes(), path),
        Site::Rdel(path) => with("RDEL", path),
        Site::Trnc { length, path } => pair("TRNC", length.to_string().as_bytes(), path),
        Site::ClientInfo(pairs) => with("CLIENTINFO", &quote_pairs(pairs)),
        Site::StorAttr(pairs) => with("STORATTR", &quote_pairs(pairs)),
        Site::TaskId(id) => with("TASKID", id),
        Site::WhoAmI => b"WHOAMI".to_vec(),
        Site::Version => b"VERSION".to_vec(),
        Site::Policy => b"POLICY".to_vec(),
        Site::BufferSize { verb, bytes } => with(verb.word(), bytes.to_string().as_bytes()),
        Site::SetNetStack(text) => with("SETNETSTACK", text),
        Site::SetDiskStack(text) => with("SETDISKSTACK", text),
        Site::Dsi(text) => with("DSI", text),
        Site::Upas(text) => with("UPAS", text),
        Site::Uprt(text) => with("UPRT", text),
        Site::Http(text) => with("HTTP", text),
        Site::Sharing(text) => with("SHARING", text),
        Site::Restrict(text) => with("RESTRICT", text),
        Site::Chroot(path) => with("CHROOT", path),
        Site::AuthzAssert(text) => with("AUTHZ_ASSERT", text),
        Site::Fault(text) => with("FAULT", text),
        Site::DcNonce(Secret(bytes)) => with("DCNONCE", leaf::hex(bytes).as_bytes()),
        Site::Relay(Announcement { token, connections, seconds }) => {
            with("RELAY", format!("{} {connections} {seconds}", leaf::hex(token)).as_bytes())
        }
        Site::DcRelay(part) => with("DCRELAY", part.word().as_bytes()),
        Site::Leaves(spec) => chunk::format_leaves(spec.as_ref())?,
        Site::Chunk(chunk) => chunk::format(chunk)?,
        Site::ReadBack { disk } => with("READBACK", if *disk { b"DISK" } else { b"MEMORY" }),
        Site::Extents { leaf, path } => chunk::format_extents(*leaf, path)?,
        Site::Probe(command) => probe::format(command)?,
        Site::Congestion(name) => probe::format_congestion(name.as_deref())?,
        Site::Spent(on) => with("SPENT", if *on { b"1" } else { b"0" }),
        Site::Durable(on) => with("DURABLE", if *on { b"1" } else { b"0" }),
        Site::Sync(path) => with("SYNC", path),
        Site::Unknown { verb, args } => join(verb, args),
    })
}
