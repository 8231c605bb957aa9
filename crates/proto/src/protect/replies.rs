//! Replies: `632-token` and `632 token` (RFC 2228 §5).
//!
//! The reference client collects lines up to the first `ddd<SP>`, looks at the first digit of that last line, and then
//! opens every line and takes the code of the reply from the beginning of the last one: so one group of protected lines is
//! exactly one reply, no group mixes protected lines and clear ones, and the last line of a reply is always by itself.

use super::base64;
use super::lines::{PlainLines, ProtectError, Seal, WireLines, sealed_len};

/// Bytes of the lines that are sealed together at most, unless one alone is longer: a listing of thousands of entries is some
/// hundred tokens then, and none of them a burden to whoever reads it whole.
pub const MAX_TOGETHER: usize = 4 << 10;

/// The server's side: replies to protected lines.
///
/// What is whole is sealed at once: a listing longer than memory passes through, and what is held back is less than a line. Lines
/// that come together, but for the last of a reply, are one protected line.
#[derive(Debug, Default)]
pub struct ReplySealer {
    lines: PlainLines,
    /// Code of the reply whose last line has not come.
    open: Option<[u8; 3]>,
}

impl ReplySealer {
    /// Takes replies and appends protected lines for those of their lines that are whole.
    ///
    /// # Errors
    /// The seal's own: the connection is over.
    pub fn feed<S: Seal>(&mut self, seal: &mut S, mut plain: &[u8], wire: &mut Vec<u8>) -> Result<(), S::Fault> {
        let mut together = Vec::new();
        while let Some(line) = self.lines.feed(&mut plain) {
            let ends = self.ends(&line);
            if ends || together.len() + line.len() > MAX_TOGETHER {
                put(seal, b'-', &together, wire)?;
                together.clear();
            }
            if ends {
                put(seal, b' ', &line, wire)?;
            } else {
                together.extend_from_slice(&line);
            }
        }
        put(seal, b'-', &together, wire)
    }

    /// True if a reply is complete with this line (RFC 959 §4.2).
    fn ends(&mut self, line: &[u8]) -> bool {
        let head = line.split_at_checked(4).map(|(head, _)| [head[0], head[1], head[2], head[3]]);
        match (self.open, head) {
            (None, Some([a, b, c, b'-'])) => self.open = Some([a, b, c]),
            (Some(code), Some([a, b, c, b' '])) if code == [a, b, c] => self.open = None,
            _ => {}
        }
        self.open.is_none()
    }
}

/// Appends the protected line of these lines, if there are any.
fn put<S: Seal>(seal: &mut S, mark: u8, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), S::Fault> {
    if plain.is_empty() {
        return Ok(());
    }
    let token = seal.seal(plain)?;
    wire.extend_from_slice(if seal.hides() { b"632" } else { b"631" });
    wire.push(mark);
    base64::encode_into(&token, wire);
    wire.extend_from_slice(b"\r\n");
    Ok(())
}

/// The client's side: protected lines to the replies inside them.
///
/// 631, 632 and 633 are taken alike; a line in clear is an error.
#[derive(Debug)]
pub struct ReplyOpener {
    lines: WireLines,
}

impl ReplyOpener {
    /// One that takes reply lines of `max_line` bytes, lines together of [`MAX_TOGETHER`], and some more: their length is for the
    /// reader of replies to judge.
    pub fn new(max_line: usize) -> Self {
        Self { lines: WireLines::new(sealed_len(max_line.max(MAX_TOGETHER))) }
    }

    /// Takes bytes from the wire and appends the reply lines they complete.
    ///
    /// # Errors
    /// [`ProtectError`]: the connection must be closed, and nothing more of it be fed. Lines opened before stand in `plain`.
    pub fn feed<S: Seal>(
        &mut self,
        seal: &mut S,
        wire: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), ProtectError<S::Fault>> {
        self.lines.open(seal, wire, token_of, plain)
    }
}

/// The text behind the code of a protected reply line.
fn token_of(line: &[u8]) -> Option<&[u8]> {
    match line {
        [b'6', b'3', b'1'..=b'3', b' ' | b'-', text @ ..] => Some(text.trim_ascii()),
        _ => None,
    }
}
