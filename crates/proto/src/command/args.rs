//! Arguments of commands, and what is wrong with them.

use super::WirePath;
use crate::ranges;
use crate::timeval::Timestamp;

/// Why a command line was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// 500: no such verb.
    #[error("Command not supported.")]
    UnknownVerb {
        /// The verb, cut to 32 bytes.
        verb: Vec<u8>,
    },
    /// 501: the verb or its arguments are malformed.
    #[error("Syntax error in parameters or arguments: {reason}.")]
    Syntax {
        /// Upper-case verb; empty if there is none.
        verb: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// 502: a verb of the standards that no server here implements.
    #[error("{verb} is not implemented.")]
    VerbNotImplemented {
        /// Upper-case verb.
        verb: &'static str,
    },
    /// 504: a valid parameter that is not implemented.
    #[error("{verb} is not implemented for parameter '{what}'.")]
    NotImplemented {
        /// Upper-case verb.
        verb: &'static str,
        /// The parameter.
        what: String,
    },
    /// 522: a network protocol other than 1 and 2 (RFC 2428 §2).
    #[error("Network protocol not supported, use (1,2).")]
    NetworkProtocol {
        /// Upper-case verb.
        verb: &'static str,
    },
    /// 536: a protection level of the standard that is not supported (RFC 2228 §3).
    #[error("{level} protection level not supported.")]
    Protection {
        /// Its letter.
        level: char,
    },
}

impl CommandError {
    /// The reply code (RFC 959 §4.2.1).
    pub fn code(&self) -> u16 {
        match self {
            Self::UnknownVerb { .. } => 500,
            Self::Syntax { .. } => 501,
            Self::VerbNotImplemented { .. } => 502,
            Self::NotImplemented { .. } => 504,
            Self::NetworkProtocol { .. } => 522,
            Self::Protection { .. } => 536,
        }
    }
}

pub(super) fn syntax(verb: &'static str, reason: &'static str) -> CommandError {
    CommandError::Syntax { verb, reason }
}

/// Splits at the first space; `None` if there is none. Further spaces belong to the rest.
pub(super) fn first_word(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&b| b == b' ') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// `N` arguments: runs of spaces before all but the last are skipped, the last keeps the rest of the line.
pub(super) fn splitn<'a, const N: usize>(
    verb: &'static str,
    rest: Option<&'a [u8]>,
) -> Result<[&'a [u8]; N], CommandError> {
    let mut rest = rest;
    let mut out: [&[u8]; N] = [b""; N];
    for (i, slot) in out.iter_mut().enumerate() {
        let text = rest.take().unwrap_or(b"");
        if i + 1 == N {
            *slot = text;
        } else {
            let trimmed = text.trim_ascii_start();
            (*slot, rest) = first_word(trimmed);
        }
        if slot.is_empty() {
            return Err(syntax(verb, "an argument is missing"));
        }
    }
    Ok(out)
}

/// A path: everything after the separator.
///
/// RFC 2640 §3.1: "when a <CR> character is encountered as part of a pathname it MUST be padded with a <NUL> character";
/// any other NUL cannot be part of a name.
pub(super) fn path(verb: &'static str, rest: Option<&[u8]>) -> Result<WirePath, CommandError> {
    let text = rest.filter(|text| !text.is_empty()).ok_or(syntax(verb, "a path is missing"))?;
    if !text.contains(&0) {
        return Ok(text.to_vec());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut previous = 0;
    for &byte in text {
        match (previous, byte) {
            (b'\r', 0) => {}
            (_, 0) => return Err(syntax(verb, "a NUL cannot be part of a path")),
            _ => out.push(byte),
        }
        previous = byte;
    }
    Ok(out)
}

pub(super) fn optional(rest: Option<&[u8]>) -> Option<Vec<u8>> {
    rest.filter(|text| !text.is_empty()).map(<[u8]>::to_vec)
}

pub(super) fn optional_path(verb: &'static str, rest: Option<&[u8]>) -> Result<Option<WirePath>, CommandError> {
    match rest {
        None | Some(b"") => Ok(None),
        rest => path(verb, rest).map(Some),
    }
}

pub(super) fn word(verb: &'static str, rest: Option<&[u8]>) -> Result<Vec<u8>, CommandError> {
    match rest.unwrap_or(b"").trim_ascii() {
        b"" => Err(syntax(verb, "an argument is missing")),
        text => Ok(text.to_vec()),
    }
}

pub(super) fn unsigned(verb: &'static str, text: &[u8]) -> Result<u64, CommandError> {
    ranges::parse_u64(text).map_err(|_| syntax(verb, "a number is malformed or too large"))
}

pub(super) fn time(verb: &'static str, text: &[u8]) -> Result<Timestamp, CommandError> {
    Timestamp::parse(text).map_err(|_| syntax(verb, "a time is YYYYMMDDHHMMSS"))
}

pub(super) fn ascii(verb: &'static str, text: &[u8]) -> Result<String, CommandError> {
    match std::str::from_utf8(text) {
        Ok(text) if text.bytes().all(|b| b.is_ascii_graphic()) => Ok(text.to_owned()),
        _ => Err(syntax(verb, "an argument is not plain text")),
    }
}
