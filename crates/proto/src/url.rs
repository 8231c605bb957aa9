//! Places a copy names: local paths, `host:path` as scp writes it, and URLs.

use std::fmt;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use crate::mlsx::percent_decode;

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scheme {
    /// `ftp://`, port 21.
    Ftp,
    /// `gsiftp://`, port 2811.
    GsiFtp,
    /// `sshftp://`, port 22.
    SshFtp,
    /// `ftps://`, port 990.
    Ftps,
    /// `whimbrel://`, port 2811.
    Whimbrel,
}

/// How the control connection of a scheme begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// In clear, and it stays so.
    Clear,
    /// With a TLS handshake, before the greeting (RFC 4217 §1 calls it deprecated; clients and servers have it).
    ImplicitTls,
    /// In clear, then AUTH TLS (RFC 4217).
    AuthTls,
    /// In clear, then AUTH GSSAPI (RFC 2228).
    AuthGssapi,
    /// Inside ssh, by a server that it starts.
    Ssh,
}

impl Scheme {
    /// Port when the URL names none.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Ftp => 21,
            Self::GsiFtp => 2811,
            Self::SshFtp => 22,
            Self::Ftps => 990,
            Self::Whimbrel => 2811,
        }
    }

    /// What comes before the login.
    pub fn start(self) -> Start {
        match self {
            Self::Ftp => Start::Clear,
            Self::GsiFtp => Start::AuthGssapi,
            Self::SshFtp => Start::Ssh,
            Self::Ftps => Start::ImplicitTls,
            Self::Whimbrel => Start::AuthTls,
        }
    }

    /// The word before `://`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::GsiFtp => "gsiftp",
            Self::SshFtp => "sshftp",
            Self::Ftps => "ftps",
            Self::Whimbrel => "whimbrel",
        }
    }
}

/// One host of a location.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Host {
    /// Name or address; IPv6 without brackets.
    pub name: String,
    /// `None`: the scheme's port, or for scp-style places the caller's.
    pub port: Option<u16>,
}

/// A place on a server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// `None` for scp-style places: the caller decides.
    pub scheme: Option<Scheme>,
    /// Login name.
    pub user: Option<String>,
    /// Password in the URL; `Debug` and `Display` hide it.
    pub password: Option<String>,
    /// At least one; more are equal entrances to the same files.
    pub hosts: Vec<Host>,
    /// Decoded path: absolute, or relative to the login directory when it starts neither with `/` nor is empty.
    pub path: Vec<u8>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({self})")
    }
}

impl fmt::Display for Remote {
    /// For people: the password is left out and bytes that are not UTF-8 are replaced.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}://", scheme.word())?;
        }
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        for (i, host) in self.hosts.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let (open, close) = if host.name.contains(':') { ("[", "]") } else { ("", "") };
            write!(f, "{comma}{open}{}{close}", host.name)?;
            if let Some(port) = host.port {
                write!(f, ":{port}")?;
            }
        }
        let path = String::from_utf8_lossy(&self.path);
        match self.scheme {
            None => write!(f, ":{path}"),
            Some(_) if path.starts_with('/') => write!(f, "{path}"),
            Some(_) => write!(f, "/~/{path}"),
        }
    }
}

/// Where bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Location {
    /// A path on this machine.
    Local(Vec<u8>),
    /// A path on a server.
    Remote(Remote),
}

/// Why a text names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Nothing was given.
    #[error("the location is empty")]
    Empty,
    /// A scheme this program does not speak.
    #[error("unknown scheme '{0}': use whimbrel, ftp, ftps, gsiftp, sshftp, file, host:path or a local path")]
    Scheme(String),
    /// No host, or an empty one in a list.
    #[error("the URL names no host")]
    NoHost,
    /// A host with characters that no name has.
    #[error("'{0}' is not a host name or address")]
    Host(String),
    /// A port that is not 1 to 65535.
    #[error("'{0}' is not a port (1 to 65535)")]
    Port(String),
    /// An IPv6 address without its closing bracket, or a malformed one.
    #[error("'{0}' is not an IPv6 address in brackets")]
    Ipv6(String),
    /// A `file:` URL with a host other than localhost.
    #[error("a file URL cannot name the host '{0}'")]
    FileHost(String),
    /// A NUL, CR or LF, plain or percent-encoded: no name with them can be sent.
    #[error("the path contains a NUL or a line end, which the protocol cannot carry")]
    Control,
    /// A `%` that starts no escape.
    #[error("a % in a URL is followed by two hexadecimal digits; %25 stands for %")]
    Escape,
    /// A user name or password that is not text, or contains a line end.
    #[error("the user name or password is not plain text")]
    Login,
}

/// Reads any place a user can name.
///
/// In this order: `scheme://…` is a URL; a text that starts with `/`, `.` or `~`, or has a `/` before its first `:`, is local (`./a:b` is how a
/// local name with a colon is written); `[user@]host:path` is remote, as scp reads it; anything else is local.
pub fn parse(text: &[u8]) -> Result<Location, UrlError> {
    if text.is_empty() {
        return Err(UrlError::Empty);
    }
    if let Some((scheme, rest)) = split_scheme(text) {
        return parse_url(&scheme, rest);
    }
    if matches!(text[0], b'/' | b'.' | b'~') {
        return local(text);
    }
    match scp_colon(text) {
        Some(colon) => parse_scp(&text[..colon], &text[colon + 1..]).map(Location::Remote),
        None => local(text),
    }
}

fn local(path: &[u8]) -> Result<Location, UrlError> {
    // Line ends are legal in local names; only NUL is not.
    if path.contains(&0) { Err(UrlError::Control) } else { Ok(Location::Local(path.to_vec())) }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `letters` before `://` (RFC 3986 §3.1), in lower case.
fn split_scheme(text: &[u8]) -> Option<(String, &[u8])> {
    let at = text.windows(3).position(|w| w == b"://")?;
    let (first, others) = text[..at].split_first()?;
    let ok = first.is_ascii_alphabetic() && others.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    ok.then(|| (text_of(&text[..at]).to_ascii_lowercase(), &text[at + 3..]))
}

/// The colon between host and path: before any slash, and outside brackets.
fn scp_colon(text: &[u8]) -> Option<usize> {
    let start = text.iter().position(|&b| b == b'@').map_or(0, |at| at + 1);
    let slash = text.iter().position(|&b| b == b'/').unwrap_or(text.len());
    if start < slash && text.get(start) == Some(&b'[') {
        let close = start + text[start..].iter().position(|&b| b == b']')?;
        return (text.get(close + 1) == Some(&b':')).then_some(close + 1);
    }
    text.iter().position(|&b| b == b':').filter(|&colon| colon < slash && colon > 0)
}

fn parse_scp(authority: &[u8], path: &[u8]) -> Result<Remote, UrlError> {
    let (login, host) = match authority.iter().rposition(|&b| b == b'@') {
        Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
        None => (None, authority),
    };
    let user = login.map(login_text).transpose()?;
    if user.as_deref() == Some("") {
        return Err(UrlError::Login);
    }
    // Here the first colon ended the host, so no port can follow.
    Ok(Remote { scheme: None, user, password: None, hosts: vec![parse_host(host)?], path: wire_path(path.to_vec())? })
}

fn parse_url(scheme: &str, rest: &[u8]) -> Result<Location, UrlError> {
    let scheme = match scheme {
        "file" => return parse_file(rest),
        "ftp" => Scheme::Ftp,
        "gsiftp" => Scheme::GsiFtp,
        "sshftp" => Scheme::SshFtp,
        "ftps" => Scheme::Ftps,
        "whimbrel" => Scheme::Whimbrel,
        other => return Err(UrlError::Scheme(other.to_owned())),
    };
    let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let (login, hosts) = match authority.iter().rposition(|&b| b == b'@') {
        Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
        None => (None, authority),
    };
    let (user, password) = login.map_or(Ok((None, None)), split_login)?;
    let hosts = hosts.split(|&b| b == b',').map(parse_host).collect::<Result<_, _>>()?;
    Ok(Location::Remote(Remote { scheme: Some(scheme), user, password, hosts, path: url_path(path)? }))
}

/// `file:///path` and `file://localhost/path`.
fn parse_file(rest: &[u8]) -> Result<Location, UrlError> {
    let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(slash);
    if !host.is_empty() && !host.eq_ignore_ascii_case(b"localhost") {
        return Err(UrlError::FileHost(text_of(host)));
    }
    if path.is_empty() {
        return Err(UrlError::Empty);
    }
    local(&decoded(path)?)
}

/// The path with its leading slash, as the reference client sends it; `/~/x` is relative to the login directory.
fn url_path(path: &[u8]) -> Result<Vec<u8>, UrlError> {
    let decoded = decoded(path)?;
    let path = match decoded.strip_prefix(b"/~/") {
        Some(relative) => relative.to_vec(),
        None if decoded == b"/~" => Vec::new(),
        None if decoded.is_empty() => b"/".to_vec(),
        None => decoded,
    };
    wire_path(path)
}

/// RFC 3986 §2.1.
fn decoded(text: &[u8]) -> Result<Vec<u8>, UrlError> {
    let is_escape = |after: &[u8]| after.len() >= 2 && after[..2].iter().all(u8::is_ascii_hexdigit);
    let whole = text.iter().enumerate().all(|(at, &byte)| byte != b'%' || is_escape(&text[at + 1..]));
    if whole { Ok(percent_decode(text)) } else { Err(UrlError::Escape) }
}

fn wire_path(path: Vec<u8>) -> Result<Vec<u8>, UrlError> {
    if path.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')) { Err(UrlError::Control) } else { Ok(path) }
}

fn login_text(bytes: &[u8]) -> Result<String, UrlError> {
    match String::from_utf8(decoded(bytes)?) {
        Ok(text) if !text.chars().any(char::is_control) => Ok(text),
        _ => Err(UrlError::Login),
    }
}

fn split_login(login: &[u8]) -> Result<(Option<String>, Option<String>), UrlError> {
    let (user, password) = match login.iter().position(|&b| b == b':') {
        Some(at) => (&login[..at], Some(&login[at + 1..])),
        None => (login, None),
    };
    if user.is_empty() {
        return Err(UrlError::Login);
    }
    Ok((Some(login_text(user)?), password.map(login_text).transpose()?))
}

/// `name`, `name:port`, `[v6]`, `[v6]:port`.
fn parse_host(text: &[u8]) -> Result<Host, UrlError> {
    let (name, port) = match text.strip_prefix(b"[") {
        Some(inner) => split_ipv6(text, inner)?,
        None => match text.iter().position(|&b| b == b':') {
            Some(at) => (check_name(&text[..at])?, Some(&text[at + 1..])),
            None => (check_name(text)?, None),
        },
    };
    Ok(Host { name, port: port.map(parse_port).transpose()? })
}

fn split_ipv6<'a>(whole: &[u8], inner: &'a [u8]) -> Result<(String, Option<&'a [u8]>), UrlError> {
    let bad = || UrlError::Ipv6(text_of(whole));
    let close = inner.iter().position(|&b| b == b']').ok_or_else(bad)?;
    let name = text_of(&inner[..close]);
    // A zone (`fe80::1%eth0`, RFC 6874) stays with the name.
    let address = name.split('%').next().unwrap_or("");
    address.parse::<Ipv6Addr>().map_err(|_| bad())?;
    match &inner[close + 1..] {
        b"" => Ok((name, None)),
        [b':', port @ ..] => Ok((name, Some(port))),
        _ => Err(bad()),
    }
}

fn check_name(name: &[u8]) -> Result<String, UrlError> {
    let ok = name.iter().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(b));
    match (name.is_empty(), ok) {
        (true, _) => Err(UrlError::NoHost),
        (_, false) => Err(UrlError::Host(text_of(name))),
        // `-oProxyCommand` must never become an argument of ssh.
        _ if name[0] == b'-' => Err(UrlError::Host(text_of(name))),
        _ => Ok(text_of(name)),
    }
}

fn parse_port(text: &[u8]) -> Result<u16, UrlError> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let port = text_of(text).parse::<u16>().ok().filter(|&p| p > 0 && digits);
    port.ok_or_else(|| UrlError::Port(text_of(text)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn remote(text: &str) -> Remote {
        match parse(text.as_bytes()) {
            Ok(Location::Remote(remote)) => remote,
            other => panic!("{text} became {other:?}"),
        }
    }

    #[test]
    fn urls_are_split_into_their_parts() {
        let r = remote("ftp://us%40er:p%3Aw@host.example:2121/a%20b/%FF");
        assert_eq!(
            (r.scheme, r.user.as_deref(), r.password.as_deref()),
            (Some(Scheme::Ftp), Some("us@er"), Some("p:w"))
        );
        assert_eq!(r.hosts, [Host { name: "host.example".into(), port: Some(2121) }]);
        assert_eq!(r.path, b"/a b/\xff");
        let r = remote("GSIFTP://[2001:db8::1]:99/x");
        assert_eq!(
            (r.scheme, r.hosts[0].name.as_str(), r.hosts[0].port),
            (Some(Scheme::GsiFtp), "2001:db8::1", Some(99))
        );
        assert_eq!(remote("sshftp://h").path, b"/");
        assert_eq!((remote("ftp://h/~/x").path, remote("ftp://h/~").path), (b"x".to_vec(), vec![]));
        let names: Vec<_> = remote("ftp://h1:1,h2:2,[::1]/p").hosts.into_iter().map(|h| (h.name, h.port)).collect();
        assert_eq!(names, [("h1".into(), Some(1)), ("h2".into(), Some(2)), ("::1".into(), None)]);
    }

    #[test]
    fn schemes_have_their_ports_and_beginnings() {
        for (word, scheme, port, start) in [
            ("ftp", Scheme::Ftp, 21, Start::Clear),
            ("ftps", Scheme::Ftps, 990, Start::ImplicitTls),
            ("whimbrel", Scheme::Whimbrel, 2811, Start::AuthTls),
            ("gsiftp", Scheme::GsiFtp, 2811, Start::AuthGssapi),
            ("sshftp", Scheme::SshFtp, 22, Start::Ssh),
        ] {
            let place = remote(&format!("{word}://u@h/x"));
            assert_eq!((place.scheme, place.to_string()), (Some(scheme), format!("{word}://u@h/x")));
            assert_eq!((scheme.default_port(), scheme.start(), scheme.word()), (port, start, word));
        }
        assert_eq!(remote("h:x").scheme, None, "the caller decides");
    }

    #[test]
    fn scp_style_places_are_told_from_local_ones() {
        let r = remote("me@host:a/b c");
        assert_eq!(
            (r.scheme, r.user.as_deref(), r.hosts[0].name.as_str(), r.path),
            (None, Some("me"), "host", b"a/b c".to_vec())
        );
        assert_eq!(remote("host:").path, b"");
        assert_eq!(remote("host:/a:b").path, b"/a:b");
        assert_eq!(remote("[::1]:/x").hosts[0].name, "::1");
        for text in ["a", "/a:b", "./a:b", "../a:b", "~/a:b", "a/b:c", ":x", "a b", "~", "[x]"] {
            assert_eq!(parse(text.as_bytes()), Ok(Location::Local(text.as_bytes().to_vec())), "{text}");
        }
        assert_eq!(parse(b"file:///a%20b"), Ok(Location::Local(b"/a b".to_vec())));
        assert_eq!(parse(b"file://localhost/x"), Ok(Location::Local(b"/x".to_vec())));
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        for (text, error) in [
            ("", UrlError::Empty),
            ("http://h/x", UrlError::Scheme("http".into())),
            ("ftp:///x", UrlError::NoHost),
            ("ftp://h1,,h2/x", UrlError::NoHost),
            ("ftp://h:0/x", UrlError::Port("0".into())),
            ("ftp://h:/x", UrlError::Port(String::new())),
            ("ftp://h:+1/x", UrlError::Port("+1".into())),
            ("ftp://h:65536/x", UrlError::Port("65536".into())),
            ("ftp://[::1/x", UrlError::Ipv6("[::1".into())),
            ("ftp://[zz]/x", UrlError::Ipv6("[zz]".into())),
            ("ftp://h o/x", UrlError::Host("h o".into())),
            ("sshftp://-oProxy/x", UrlError::Host("-oProxy".into())),
            ("-x:y", UrlError::Host("-x".into())),
            ("file://other/x", UrlError::FileHost("other".into())),
            ("file://", UrlError::Empty),
            ("ftp://h/a%0d%0aDELE", UrlError::Control),
            ("ftp://h/%4", UrlError::Escape),
            ("ftp://u%zz@h/", UrlError::Escape),
            ("file:///a%", UrlError::Escape),
            ("h:a\nb", UrlError::Control),
            ("ftp://a%0ab@h/x", UrlError::Login),
            ("ftp://@h/x", UrlError::Login),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(error), "{text}");
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        let r = remote("ftp://u:hunter2@h:5/x");
        assert_eq!(format!("{r:?} {r}"), "Remote(ftp://u@h:5/x) ftp://u@h:5/x");
        assert_eq!(remote("u@[::1]:x").to_string(), "u@[::1]:x");
    }

    proptest! {
        #[test]
        fn any_path_survives_a_url(path in proptest::collection::vec(any::<u8>().prop_filter("cannot be sent", |b| !matches!(b, 0 | b'\r' | b'\n')), 0..30)) {
            let path = [b"/", path.as_slice()].concat();
            if path.starts_with(b"/~") { return Ok(()) }
            let text = [b"ftp://h", crate::mlsx::percent_encode(&path).as_slice()].concat();
            let Ok(Location::Remote(r)) = parse(&text) else { panic!("a URL is remote") };
            prop_assert_eq!(r.path, path);
        }

        #[test]
        fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60), text in "(ftp|file)://[ -~]{0,30}") {
            let _ = parse(&bytes);
            let _ = parse(text.as_bytes());
        }
    }
}
