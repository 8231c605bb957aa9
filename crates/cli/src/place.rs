//! Places as people write them: local paths, `host:path`, `endpoint:path`, URLs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

use whimbrel_dtn::client::endpoints::Endpoints;
use whimbrel_dtn::client::options::Place;
use whimbrel_dtn::client::security::Security;
use whimbrel_dtn::client::target::{GRIDFTP_PORT, Password, Target};
use whimbrel_proto::url::{self, Location, Remote, Scheme, UrlError};

use crate::endpoints;

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

/// Reads a place; `HOST:PATH` means the endpoint of that name where the user's file has one.
pub fn parse(text: &[u8]) -> Result<Place, PlaceError> {
    meant(text, endpoints::of_user)
}

/// Reads a place; `endpoints` is asked only for what may name one, so that URLs and local paths work whatever the file holds.
fn meant<'a>(text: &[u8], endpoints: impl FnOnce() -> Result<&'a Endpoints, String>) -> Result<Place, PlaceError> {
    match url::parse(text) {
        Ok(Location::Local(path)) => local(&path),
        Ok(Location::Remote(remote)) if remote.scheme.is_some() => server(remote),
        Ok(Location::Remote(remote)) => {
            remember_port(&remote);
            server(endpoints().map_err(PlaceError)?.resolved(remote))
        }
        Err(error) => Err(PlaceError(match error {
            UrlError::Empty => "a place is a path, HOST:PATH or a URL; this is empty".to_owned(),
            UrlError::Scheme(scheme) => {
                format!(
                    "{scheme}:// is no scheme known here; ftp://, ftps://, gsiftp://, sshftp://, whimbrel:// and file:/// are"
                )
            }
            other => other.to_string(),
        })),
    }
}

/// What a place of this run would be as a URL if the digits behind its colon are a port.
static WITH_PORT: OnceLock<String> = OnceLock::new();

/// The URL that was perhaps meant by `HOST:2811/data`, which is the path `2811/data` at HOST.
pub fn perhaps_meant() -> Option<&'static str> {
    WITH_PORT.get().map(String::as_str)
}

fn remember_port(remote: &Remote) {
    if let Some(url) = with_port(remote) {
        // One of several is enough to see how it is written.
        let _ = WITH_PORT.set(url);
    }
}

fn with_port(remote: &Remote) -> Option<String> {
    let path = std::str::from_utf8(&remote.path).ok()?;
    let (port, rest) = path.split_once('/').unwrap_or((path, ""));
    port.parse::<u16>().ok().filter(|_| port.bytes().all(|byte| byte.is_ascii_digit()))?;
    let host = &remote.hosts.first()?.name;
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    Some(format!("ftp://{host}:{port}/{rest}"))
}

fn server(remote: Remote) -> Result<Place, PlaceError> {
    let default_port = match remote.scheme {
        None => GRIDFTP_PORT,
        Some(scheme @ (Scheme::Ftp | Scheme::Ftps | Scheme::GsiFtp | Scheme::Whimbrel)) => scheme.default_port(),
        // As ssh's own configuration says.
        Some(Scheme::SshFtp) => 0,
    };
    if remote.scheme == Some(Scheme::SshFtp) && remote.password.is_some() {
        return Err(PlaceError("ssh takes no password from a URL: use a key, an agent, or let it ask".to_owned()));
    }
    let mut addresses = remote.hosts.iter().map(|host| (host.name.clone(), host.port.unwrap_or(default_port)));
    let (host, port) = addresses.next().ok_or_else(|| PlaceError(UrlError::NoHost.to_string()))?;
    let target = Target {
        others: addresses.collect(),
        user: remote.user,
        password: remote.password.map(Password),
        security: match remote.scheme {
            Some(Scheme::Whimbrel) => Security::Tls,
            Some(Scheme::Ftps) => Security::ImplicitTls,
            Some(Scheme::GsiFtp) => Security::Gsi,
            Some(Scheme::SshFtp) => Security::Ssh,
            _ => Security::Clear,
        },
        ..Target::anonymous(host, port)
    };
    // An empty path is the directory a login starts in.
    let path = if remote.path.is_empty() { b".".to_vec() } else { remote.path };
    Ok(Place { target: Some(target), path })
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

    /// Whoever runs the tests may have named endpoints.
    fn parse(text: &[u8]) -> Result<Place, PlaceError> {
        let none = Endpoints::default();
        meant(text, || Ok(&none))
    }

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
    fn digits_behind_the_colon_are_a_path_that_may_have_been_meant_as_a_port() {
        assert_eq!(remote("dtn:2811/data"), pair("dtn:2811", "2811/data"));
        let meant = |text: &str| match url::parse(text.as_bytes()) {
            Ok(Location::Remote(remote)) => with_port(&remote),
            _ => None,
        };
        assert_eq!(meant("dtn:2811/data").as_deref(), Some("ftp://dtn:2811/data"));
        assert_eq!(meant("[::1]:2811").as_deref(), Some("ftp://[::1]:2811/"));
        for path in ["dtn:/2811/data", "dtn:run7/x", "dtn:99999/x", "dtn:+21/x", "dtn:"] {
            assert_eq!(meant(path), None, "{path}");
        }
    }

    #[test]
    fn urls_are_decoded_and_have_their_own_default_port() {
        assert_eq!(remote("ftp://h/a%20b"), pair("h:21", "/a b"));
        assert_eq!(remote("FTP://u%40x:p@[::1]:99/~/c"), pair("u@x@[::1]:99", "c"));
        assert_eq!(remote("ftp://h/~"), pair("h:21", "."));
        assert_eq!(remote("ftp://h:2811"), pair("h:2811", "/"));
        assert_eq!(remote("gsiftp://h/~/c"), pair("h:2811", "c"));
    }

    #[test]
    fn an_endpoint_may_be_many_servers() {
        assert_eq!(remote("ftp://a:1,b,[::1]:3/x"), pair("a:1,b:21,[::1]:3", "/x"));
    }

    #[test]
    fn over_ssh_the_port_is_what_the_url_or_the_configuration_of_ssh_says() {
        assert_eq!(remote("sshftp://ada@h/~/run"), pair("ada@h", "run"));
        assert_eq!(remote("sshftp://h:2222/a"), pair("h:2222", "/a"));
        assert!(parse(b"sshftp://ada:secret@h/a").is_err(), "a password");
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
        for bad in
            ["", "ftp:///x", "ftp://h:port/", "ftp://h/%4", "http://h/", "sshftp:///x", "ftp://[::1/x", "ftp://a,/x"]
        {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
