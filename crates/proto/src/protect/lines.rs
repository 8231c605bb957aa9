//! What both directions share: who seals, what can go wrong, and how the wire is cut into lines.

use super::base64::{self, Base64Error};

/// Turns plain lines into tokens and back; tokens are made and opened in one order, each once.
///
/// A token is whatever one message becomes: one or more TLS records for GSI, one wrap token for Kerberos.
pub trait Seal {
    /// Why a token cannot be made or is not genuine; the connection is over then.
    type Fault;

    /// The token of a message.
    ///
    /// # Errors
    /// If the context can seal nothing any more.
    fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, Self::Fault>;

    /// Appends the message of a token.
    ///
    /// # Errors
    /// If the token was changed, repeated, left out or cut short.
    fn open(&mut self, token: &[u8], into: &mut Vec<u8>) -> Result<(), Self::Fault>;

    /// True if tokens are encrypted (ENC, 632), false if they are only guarded against change (MIC, 631).
    fn hides(&self) -> bool;
}

/// Why a protected connection cannot go on: whoever reads this closes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtectError<F> {
    /// A line in clear where only protected ones are taken.
    #[error("a line came in clear over a protected control connection")]
    ClearLine,
    /// A protected line whose token cannot be read.
    #[error("the token of a protected line is not base64")]
    NotBase64,
    /// A line beyond the limit.
    #[error("a protected line is longer than {limit} bytes")]
    TooLong {
        /// The limit, bytes of the line as it is on the wire.
        limit: usize,
    },
    /// The token is not genuine.
    #[error("a protected line cannot be opened: {0}")]
    Fault(F),
}

impl<F> From<Base64Error> for ProtectError<F> {
    fn from(error: Base64Error) -> Self {
        match error {
            Base64Error::Malformed => Self::NotBase64,
            Base64Error::TooLong { limit } => Self::TooLong { limit },
        }
    }
}

/// Bytes on the wire of a line whose plain text has `plain` bytes.
///
/// A TLS record of at most 16 KiB costs 22 bytes in TLS 1.3, up to 61 in TLS 1.2; a Kerberos token some 60.
pub(super) const fn sealed_len(plain: usize) -> usize {
    const RECORD: usize = 16 << 10;
    const OVERHEAD: usize = 128;
    let records = plain.div_ceil(RECORD) + 1;
    base64::encoded_len(plain.saturating_add(records.saturating_mul(OVERHEAD))).saturating_add(8)
}

/// Cuts the wire into protected lines.
///
/// Such a line holds no CR, so that one ends it: an ABOR sent as urgent data may lack its LF (RFC 959 §4.1.3).
#[derive(Debug)]
pub(super) struct WireLines {
    line: Vec<u8>,
    limit: usize,
    /// The LF of a line that a CR ended may still come.
    late_lf: bool,
}

impl WireLines {
    pub(super) fn new(limit: usize) -> Self {
        Self { line: Vec::new(), limit, late_lf: false }
    }

    /// Takes bytes up to and including the next line end out of `wire`; the line, if it is complete.
    fn feed<F>(&mut self, wire: &mut &[u8]) -> Result<Option<Vec<u8>>, ProtectError<F>> {
        if std::mem::take(&mut self.late_lf) && wire.first() == Some(&b'\n') {
            *wire = &wire[1..];
        }
        let end = wire.iter().position(|b| matches!(b, b'\r' | b'\n'));
        let text = &wire[..end.unwrap_or(wire.len())];
        if self.line.len() + text.len() > self.limit {
            return Err(ProtectError::TooLong { limit: self.limit });
        }
        self.line.extend_from_slice(text);
        let Some(end) = end else {
            *wire = b"";
            return Ok(None);
        };
        self.late_lf = wire[end] == b'\r';
        *wire = &wire[end + 1..];
        Ok(Some(std::mem::take(&mut self.line)))
    }

    /// Opens the lines that these bytes complete; `token_of` finds the token of a line, or says that it is in clear.
    pub(super) fn open<S: Seal>(
        &mut self,
        seal: &mut S,
        mut wire: &[u8],
        token_of: fn(&[u8]) -> Option<&[u8]>,
        plain: &mut Vec<u8>,
    ) -> Result<(), ProtectError<S::Fault>> {
        while !wire.is_empty() {
            if let Some(line) = self.feed(&mut wire)? {
                let token = base64::decode_sealed(token_of(&line).ok_or(ProtectError::ClearLine)?, line.len())?;
                open_line(seal, &token, plain)?;
            }
        }
        Ok(())
    }
}

/// Cuts plain bytes, which come from our own machines, into lines with their ends; what is unfinished waits.
#[derive(Debug, Default)]
pub(super) struct PlainLines {
    waiting: Vec<u8>,
}

impl PlainLines {
    /// The next whole line and what is left behind it; `None` once the rest is kept.
    pub(super) fn feed<'a>(&mut self, plain: &mut &'a [u8]) -> Option<std::borrow::Cow<'a, [u8]>> {
        let Some(end) = plain.iter().position(|&b| b == b'\n') else {
            self.waiting.extend_from_slice(plain);
            *plain = b"";
            return None;
        };
        let (line, rest) = plain.split_at(end + 1);
        *plain = rest;
        if self.waiting.is_empty() {
            return Some(line.into());
        }
        self.waiting.extend_from_slice(line);
        Some(std::mem::take(&mut self.waiting).into())
    }
}

/// Appends the message of a token as one line: one NUL at its end is dropped, a missing line end is added (GCT practice).
fn open_line<S: Seal>(seal: &mut S, token: &[u8], plain: &mut Vec<u8>) -> Result<(), ProtectError<S::Fault>> {
    let start = plain.len();
    seal.open(token, plain).map_err(ProtectError::Fault)?;
    if plain.len() > start && plain.last() == Some(&0) {
        plain.pop();
    }
    if plain.len() == start || plain.last() != Some(&b'\n') {
        plain.extend_from_slice(b"\r\n");
    }
    Ok(())
}
