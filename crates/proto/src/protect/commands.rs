//! Commands: `ENC token` (RFC 2228 §3).

use super::base64;
use super::lines::{PlainLines, ProtectError, Seal, WireLines, sealed_len};
use crate::line::strip_telnet;

/// The server's side: protected lines to the command lines inside them.
///
/// Any of ENC, MIC and CONF is taken, as the reference server does; a line in clear, an empty one included, is an error.
#[derive(Debug)]
pub struct CommandOpener {
    lines: WireLines,
}

impl CommandOpener {
    /// One that takes command lines of `max_line` bytes and some more, whose length is for the control machine to judge.
    pub fn new(max_line: usize) -> Self {
        Self { lines: WireLines::new(sealed_len(max_line)) }
    }

    /// Takes bytes from the wire and appends the commands they complete, each with its CRLF.
    ///
    /// # Errors
    /// [`ProtectError`]: the connection must be closed, and nothing more of it be fed. Commands opened before stand in `plain`.
    pub fn feed<S: Seal>(
        &mut self,
        seal: &mut S,
        wire: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), ProtectError<S::Fault>> {
        self.lines.open(seal, wire, token_of, plain)
    }
}

/// The text behind the verb of a protected command; Telnet signals before an ABOR stand before the verb.
fn token_of(line: &[u8]) -> Option<&[u8]> {
    let line = strip_telnet(line);
    let (verb, token) = line.split_at(line.iter().position(|&b| b == b' ')?);
    let protected = [&b"ENC"[..], b"MIC", b"CONF"].iter().any(|known| verb.eq_ignore_ascii_case(known));
    protected.then(|| token.trim_ascii())
}

/// The client's side: command lines to protected lines.
#[derive(Debug, Default)]
pub struct CommandSealer {
    lines: PlainLines,
}

impl CommandSealer {
    /// Takes command lines and appends a protected line for each that is whole.
    ///
    /// # Errors
    /// The seal's own: the connection is over.
    pub fn feed<S: Seal>(&mut self, seal: &mut S, mut plain: &[u8], wire: &mut Vec<u8>) -> Result<(), S::Fault> {
        while let Some(line) = self.lines.feed(&mut plain) {
            let token = seal.seal(&line)?;
            wire.extend_from_slice(if seal.hides() { b"ENC " } else { b"MIC " });
            base64::encode_into(&token, wire);
            wire.extend_from_slice(b"\r\n");
        }
        Ok(())
    }
}
