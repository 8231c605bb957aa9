//! Places as people write them: local paths, `host:path`, URLs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use whimbrel_dtn::client::options::Place;
use whimbrel_dtn::client::target::{GRIDFTP_PORT, Password, Target};

/// The port of `ftp://` URLs without one (RFC 1738 §3.2.1).
const FTP_PORT: u16 = 21;

/// Why text is no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceError(pub String);

impl std::fmt::Display for PlaceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlaceError {}

/// For clap: keeps the bytes.
pub fn parse_argument(text: &OsStr) -> Result<Place, PlaceError> {
    parse(text.as_bytes())
}

/// clap's form of [`parse_argument`].
pub fn parser() -> clap::builder::ValueParser {
    use clap::builder::{OsStringValueParser, TypedValueParser as _};
    OsStringValueParser::new().try_map(|text: OsString| parse_argument(&text)).into()
}

/// Reads a place.
pub fn parse(text: &[u8]) -> Result<Place, PlaceError> {
    if text.is_empty() {
        return Err(PlaceError("a place is a path, HOST:PATH or a URL; this is empty".to_owned()));
    }
    if let Some(at) = text.windows(3).position(|window| window == b"://") {
        let scheme = &text[..at];
        if !scheme.is_empty() && scheme.iter().all(u8::is_ascii_alphanumeric) {
            return parse_url(&scheme.to_ascii_lowercase(), &text[at + 3..]);
        }
    }
    match split_host(text) {
        Some((host, path)) => {
            let (user, password, host, port) = parse_authority(host, GRIDFTP_PORT)?;
            let path = if path.is_empty() { b".".to_vec() } else { path.to_vec() };
            Ok(Place { target: Some(Target { host, port, user, password }), path })
        }
        None => local(text),
    }
}

/// `host:path`, as scp reads it: the colon stands before any slash.
fn split_host(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = text.iter().position(|&byte| byte == b'/').unwrap_or(text.len());
    let head = &text[..slash];
    let search_from = head.iter().position(|&byte| byte == b']').filter(|_| head.contains(&b'[')).unwrap_or(0);
    let colon = search_from + head[search_from..].iter().position(|&byte| byte == b':')?;
    (colon > 0).then(|| (&text[..colon], &text[colon + 1..]))
}

fn parse_url(scheme: &[u8], rest: &[u8]) -> Result<Place, PlaceError> {
    let slash = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let mut path = percent_decoded(path)?;
    match scheme {
        b"ftp" => {}
        b"file" if authority.is_empty() || authority == b"localhost" => return local(&path),
        b"gsiftp" | b"sshftp" => {
            let name = String::from_utf8_lossy(scheme);
            return Err(PlaceError(format!(
                "{name}:// needs credentials that this version cannot use yet; ftp:// works"
            )));
        }
        _ => {
            return Err(PlaceError(format!(
                "{}:// is no scheme known here; ftp:// and file:/// are",
                String::from_utf8_lossy(scheme)
            )));
        }
    }
    let (user, password, host, port) = parse_authority(authority, FTP_PORT)?;
    if path.is_empty() {
        path.push(b'/');
    }
    if path.starts_with(b"/~/") || path == b"/~" {
        path.remove(0);
    }
    Ok(Place { target: Some(Target { host, port, user, password }), path })
}

type Authority = (Option<String>, Option<Password>, String, u16);

fn parse_authority(text: &[u8], default_port: u16) -> Result<Authority, PlaceError> {
    let text = std::str::from_utf8(text).map_err(|_| PlaceError("a host name is plain text".to_owned()))?;
    let (login, host_port) = match text.rsplit_once('@') {
        Some((login, rest)) => (Some(login), rest),
        None => (None, text),
    };
    let (host, port) = match host_port.strip_prefix('[') {
        Some(rest) => {
            let (host, after) =
                rest.split_once(']').ok_or_else(|| PlaceError(format!("a ] is missing in {host_port}")))?;
            (host, after.strip_prefix(':'))
        }
        None => match host_port.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (host_port, None),
        },
    };
    if host.is_empty() {
        return Err(PlaceError("the host name is missing".to_owned()));
    }
    let port = match port {
        None | Some("") => default_port,
        Some(port) => port.parse().map_err(|_| PlaceError(format!("{port} is no port number")))?,
    };
    let (user, password) = match login
        .map(|login| login.split_once(':').map_or((login, None), |(user, pw)| (user, Some(pw))))
    {
        None => (None, None),
        Some((user, password)) => (Some(decoded_text(user)?), password.map(decoded_text).transpose()?.map(Password)),
    };
    Ok((user, password, host.to_owned(), port))
}

fn decoded_text(text: &str) -> Result<String, PlaceError> {
    String::from_utf8(percent_decoded(text.as_bytes())?).map_err(|_| PlaceError("a login is plain text".to_owned()))
}

fn percent_decoded(text: &[u8]) -> Result<Vec<u8>, PlaceError> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            out.push(byte);
            rest = after;
            continue;
        }
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let value = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(value.ok_or_else(|| {
            PlaceError("a % in a URL is followed by two hexadecimal digits; %25 stands for %".to_owned())
        })?);
        rest = &after[2..];
    }
    Ok(out)
}

fn local(path: &[u8]) -> Result<Place, PlaceError> {
    if path.starts_with(b"/") {
        return Ok(Place { target: None, path: path.to_vec() });
    }
    let directory =
        std::env::current_dir().map_err(|error| PlaceError(format!("the current directory is unknown: {error}")))?;
    let mut absolute = directory.into_os_string().into_vec();
    absolute.push(b'/');
    absolute.extend_from_slice(path);
    Ok(Place { target: None, path: absolute })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> (String, String) {
        let place = parse(text.as_bytes()).unwrap();
        let target = place.target.expect("a remote place");
        let user = target.user.clone().map(|user| format!("{user}@")).unwrap_or_default();
        (format!("{user}{target}"), String::from_utf8_lossy(&place.path).into_owned())
    }

    fn pair(host: &str, path: &str) -> (String, String) {
        (host.to_owned(), path.to_owned())
    }

    #[test]
    fn places_are_read_as_scp_reads_them() {
        assert_eq!(remote("dtn:/a/b"), pair("dtn:2811", "/a/b"));
        assert_eq!(remote("anna@dtn:run7"), pair("anna@dtn:2811", "run7"));
        assert_eq!(remote("dtn:"), pair("dtn:2811", "."));
        assert_eq!(remote("[::1]:/a"), pair("[::1]:2811", "/a"));
    }

    #[test]
    fn urls_are_decoded_and_have_their_own_default_port() {
        assert_eq!(remote("ftp://h/a%20b"), pair("h:21", "/a b"));
        assert_eq!(remote("FTP://u%40x:p@[::1]:99/~/c"), pair("u@x@[::1]:99", "~/c"));
        assert_eq!(remote("ftp://h:2811"), pair("h:2811", "/"));
    }

    #[test]
    fn everything_else_is_a_local_path() {
        for text in ["/a:b", "./a:b", "dir/x:y", ":a", "plain"] {
            let place = parse(text.as_bytes()).unwrap();
            assert!(place.target.is_none() && place.path.starts_with(b"/"), "{text}");
        }
        assert_eq!(parse(b"/\xff").unwrap().path, b"/\xff");
        assert_eq!(parse(b"file:///a%41").unwrap().path, b"/aA");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_reason() {
        for bad in ["", "ftp:///x", "ftp://h:port/", "ftp://h/%4", "http://h/", "gsiftp://h/x", "ftp://[::1/x"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
