//! GET and PUT of GridFTP version 2: one command carries path and data address (GFD.47 §3.3).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::args::{CommandError, path as parse_path, syntax};
use super::{TransferMode, WirePath};
use crate::hostport;

/// Which data connection a GET or PUT uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum V2Data {
    /// `pasv;`: the server listens and tells where in a 127 reply.
    Passive,
    /// `port=…;`: the server connects there.
    Port(SocketAddr),
    /// Neither: the data handle of the last transfer.
    Cached,
}

/// Arguments of GET or PUT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct V2Transfer {
    /// The file; it cannot contain `;`.
    pub path: WirePath,
    /// The data connection.
    pub data: V2Data,
    /// `mode=s;` or `mode=e;`: set before the transfer.
    pub mode: Option<TransferMode>,
}

/// Parses `key=value;key;…`.
pub(super) fn parse(verb: &'static str, args: &[u8]) -> Result<V2Transfer, CommandError> {
    let mut path = None;
    let (mut data, mut mode) = (V2Data::Cached, None);
    for item in args.split(|&b| b == b';').filter(|item| !item.trim_ascii().is_empty()) {
        let (key, value) = match item.iter().position(|&b| b == b'=') {
            Some(at) => (&item[..at], &item[at + 1..]),
            None => (item, &b""[..]),
        };
        match key.trim_ascii().to_ascii_lowercase().as_slice() {
            b"path" => path = Some(parse_path(verb, Some(value))?),
            b"pasv" => data = V2Data::Passive,
            b"port" => data = V2Data::Port(hostport::parse_either(value).map_err(|_| syntax(verb, "bad port="))?),
            b"mode" if value.eq_ignore_ascii_case(b"s") => mode = Some(TransferMode::Stream),
            b"mode" if value.eq_ignore_ascii_case(b"e") => mode = Some(TransferMode::ExtendedBlock),
            _ => return Err(CommandError::NotImplemented { verb, what: String::from_utf8_lossy(key).into_owned() }),
        }
    }
    let path = path.ok_or(syntax(verb, "path= is missing"))?;
    Ok(V2Transfer { path, data, mode })
}
