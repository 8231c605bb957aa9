//! SITE PROBE, ERET M and D, ESTO M and D: measuring a path and its ends (our own extension).

use serde::{Deserialize, Serialize};

use super::args::{CommandError, first_word, path, splitn, syntax};
use super::encode::must;
use super::{EncodeError, Eret, Esto, Site, WirePath};
use crate::fact;
use crate::op::Bounds;
use crate::spent;

/// A SITE PROBE command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteProbe {
    /// `HOST path`: describes the host, and the file system of the path.
    Host(WirePath),
    /// `READ bytes,milliseconds path`: reads storage.
    Read(Bounds, WirePath),
    /// `WRITE bytes,milliseconds path`: writes storage.
    Write(Bounds, WirePath),
}

const SITE: &str = "SITE";

/// What follows `SITE PROBE `.
pub(super) fn parse(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    let (word, rest) = first_word(rest.unwrap_or(b"").trim_ascii_start());
    Ok(Site::Probe(match word.to_ascii_uppercase().as_slice() {
        b"HOST" => SiteProbe::Host(path(SITE, rest)?),
        b"READ" => measured(SITE, rest).map(|(bounds, path)| SiteProbe::Read(bounds, path))?,
        b"WRITE" => measured(SITE, rest).map(|(bounds, path)| SiteProbe::Write(bounds, path))?,
        _ => return Err(syntax(SITE, "PROBE is HOST, READ or WRITE")),
    }))
}

fn measured(verb: &'static str, rest: Option<&[u8]>) -> Result<(Bounds, WirePath), CommandError> {
    let [bounds, name] = splitn(verb, rest)?;
    let bounds = fact::parse_bounds(bounds).ok_or(syntax(verb, "the bounds are bytes,milliseconds, both above 0"))?;
    Ok((bounds, path(verb, Some(name))?))
}

/// What follows `ERET M ` or `ERET D `.
pub(super) fn eret(storage: bool, args: &[u8]) -> Result<Eret, CommandError> {
    measured("ERET", Some(args)).map(|(bounds, path)| Eret::Probe { storage, bounds, path })
}

/// What follows `ESTO M ` or `ESTO D `.
pub(super) fn esto(storage: bool, args: &[u8]) -> Result<Esto, CommandError> {
    measured("ESTO", Some(args)).map(|(bounds, path)| Esto::Probe { storage, bounds, path })
}

/// What follows `SITE CONGESTION `: a name, or `-` for the system's.
pub(super) fn congestion(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    let text = std::str::from_utf8(rest.unwrap_or(b"").trim_ascii()).unwrap_or("");
    match text {
        "-" => Ok(Site::Congestion(None)),
        name if spent::is_congestion(name) => Ok(Site::Congestion(Some(name.to_owned()))),
        _ => Err(syntax(SITE, "CONGESTION is a name as the kernel writes it, or -")),
    }
}

/// The text after `SITE `.
pub(super) fn format(probe: &SiteProbe) -> Result<Vec<u8>, EncodeError> {
    let (words, name) = match probe {
        SiteProbe::Host(path) => ("HOST".to_owned(), path),
        SiteProbe::Read(bounds, path) => (format!("READ {}", written(*bounds)?), path),
        SiteProbe::Write(bounds, path) => (format!("WRITE {}", written(*bounds)?), path),
    };
    must(&format!("PROBE {words}"), name)
}

/// The text after `SITE `.
pub(super) fn format_congestion(name: Option<&str>) -> Result<Vec<u8>, EncodeError> {
    match name {
        None => Ok(b"CONGESTION -".to_vec()),
        Some(name) if spent::is_congestion(name) => Ok(format!("CONGESTION {name}").into_bytes()),
        Some(_) => Err(EncodeError::Inexpressible),
    }
}

/// The text after `ERET ` or `ESTO `.
pub(super) fn format_data(storage: bool, bounds: Bounds, name: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let word = if storage { "D" } else { "M" };
    must(&format!("{word} {}", written(bounds)?), name)
}

fn written(bounds: Bounds) -> Result<String, EncodeError> {
    let text = fact::format_bounds(bounds);
    let expressible = fact::parse_bounds(text.as_bytes()) == Some(bounds);
    expressible.then_some(text).ok_or(EncodeError::Inexpressible)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::command::Command;

    fn bounds() -> Bounds {
        Bounds { bytes: 1 << 30, time: Duration::from_millis(2500) }
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        let path = || b"/a b".to_vec();
        let site = |site| Command::Site(site);
        for (command, line) in [
            (site(Site::Probe(SiteProbe::Host(path()))), "SITE PROBE HOST /a b"),
            (site(Site::Probe(SiteProbe::Read(bounds(), path()))), "SITE PROBE READ 1073741824,2500 /a b"),
            (site(Site::Probe(SiteProbe::Write(bounds(), path()))), "SITE PROBE WRITE 1073741824,2500 /a b"),
            (
                Command::Eret(Eret::Probe { storage: false, bounds: bounds(), path: path() }),
                "ERET M 1073741824,2500 /a b",
            ),
            (
                Command::Esto(Esto::Probe { storage: true, bounds: bounds(), path: path() }),
                "ESTO D 1073741824,2500 /a b",
            ),
            (site(Site::Congestion(Some("bbr".into()))), "SITE CONGESTION bbr"),
            (site(Site::Congestion(None)), "SITE CONGESTION -"),
            (site(Site::Spent(true)), "SITE SPENT 1"),
        ] {
            let mut out = Vec::new();
            command.encode(&mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("{line}\r\n"));
            assert_eq!(Command::parse(line.as_bytes()), Ok(command), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for line in [
            "SITE PROBE",
            "SITE PROBE HOST",
            "SITE PROBE SEEK 1,1 /a",
            "SITE PROBE READ 1 /a",
            "SITE PROBE READ 0,1 /a",
            "SITE PROBE WRITE 1,1",
            "ERET M 1,0 /a",
            "ESTO D x,1 /a",
            "SITE CONGESTION",
            "SITE CONGESTION a b",
            "SITE SPENT 2",
        ] {
            assert!(Command::parse(line.as_bytes()).is_err(), "{line}");
        }
        let half = Bounds { time: Duration::from_micros(1500), ..bounds() };
        assert!(format_data(false, half, b"/a").is_err(), "half a millisecond cannot be said");
        assert!(format_congestion(Some("a;b")).is_err());
    }
}
