//! Replies: a code and lines of text, written by the server and read incrementally by the client (RFC 959 §4.2).

pub mod error_body;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::line::{LineError, LineSplitter};

/// Most bytes of text in one reply.
pub const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;
/// Most lines in one reply.
pub const MAX_REPLY_LINES: usize = 262_144;
/// Most bytes in one line of a reply.
pub const MAX_REPLY_LINE: usize = 64 * 1024;

/// First digit of a reply code (RFC 959 §4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyClass {
    /// 1yz: another reply follows.
    Preliminary,
    /// 2yz: done.
    Completion,
    /// 3yz: send the rest.
    Intermediate,
    /// 4yz: failed, may pass.
    Transient,
    /// 5yz: failed for good.
    Permanent,
    /// 6yz: a protected reply (RFC 2228 §5).
    Protected,
}

/// One reply.
///
/// `lines` holds the text of every line in order, without code, separator and line end. The separator of middle
/// lines is gone: ` text` and `250-text` both give `text`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The code, `100..=699`.
    pub code: u16,
    /// At least one line.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// A reply of one line.
    pub fn line(code: u16, text: &str) -> Self {
        Self::from_lines(code, [text])
    }

    /// A first line, middle lines that go out with a leading space, and a last line.
    pub fn multi<T: Into<Vec<u8>>>(code: u16, first: &str, middle: impl IntoIterator<Item = T>, last: &str) -> Self {
        let mut lines = vec![first.as_bytes().to_vec()];
        lines.extend(middle.into_iter().map(Into::into));
        lines.push(last.as_bytes().to_vec());
        Self { code, lines }
    }

    /// A reply of these lines; none gives one empty line.
    pub fn from_lines<T: AsRef<[u8]>>(code: u16, lines: impl IntoIterator<Item = T>) -> Self {
        let mut lines: Vec<Vec<u8>> = lines.into_iter().map(|l| l.as_ref().to_vec()).collect();
        if lines.is_empty() {
            lines.push(Vec::new());
        }
        Self { code, lines }
    }

    /// The class of the code.
    pub fn class(&self) -> ReplyClass {
        match self.code / 100 {
            1 => ReplyClass::Preliminary,
            2 => ReplyClass::Completion,
            3 => ReplyClass::Intermediate,
            4 => ReplyClass::Transient,
            5 => ReplyClass::Permanent,
            _ => ReplyClass::Protected,
        }
    }

    /// True for 2yz.
    pub fn is_success(&self) -> bool {
        self.class() == ReplyClass::Completion
    }

    /// True for 2yz and 3yz: done, or ready for the next command of a sequence.
    pub fn is_positive(&self) -> bool {
        matches!(self.class(), ReplyClass::Completion | ReplyClass::Intermediate)
    }

    /// True for 4yz and 5yz.
    pub fn is_failure(&self) -> bool {
        matches!(self.class(), ReplyClass::Transient | ReplyClass::Permanent)
    }

    /// Text of the first line.
    pub fn first_text(&self) -> &[u8] {
        self.lines.first().map_or(b"", Vec::as_slice)
    }

    /// Text of the last line.
    pub fn last_text(&self) -> &[u8] {
        self.lines.last().map_or(b"", Vec::as_slice)
    }

    /// The lines between the first and the last.
    pub fn middle_lines(&self) -> &[Vec<u8>] {
        match self.lines.len() {
            0..=2 => &[],
            n => &self.lines[1..n - 1],
        }
    }

    /// All text for people: lines joined by `; `, invalid UTF-8 replaced, control characters as spaces.
    pub fn display_text(&self) -> String {
        let lines: Vec<String> = self.lines.iter().map(|l| String::from_utf8_lossy(l).into_owned()).collect();
        lines.join("; ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }

    /// Writes the reply with middle lines behind one space, the style of listings and FEAT (RFC 2389 §3.2).
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_styled(out, b" ");
    }

    /// Writes the reply with the code before every line, the style of the reference server's error texts.
    pub fn encode_prefixed(&self, out: &mut Vec<u8>) {
        self.encode_styled(out, format!("{:03}-", self.code).as_bytes());
    }

    fn encode_styled(&self, out: &mut Vec<u8>, middle: &[u8]) {
        let last = self.lines.len().saturating_sub(1);
        for (i, line) in self.lines.iter().enumerate() {
            match i {
                _ if i == last => out.extend_from_slice(format!("{:03} ", self.code).as_bytes()),
                0 => out.extend_from_slice(format!("{:03}-", self.code).as_bytes()),
                _ => out.extend_from_slice(middle),
            }
            push_safe(out, line);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// [`Self::encode`] into a new buffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// Text of a reply line; CR and LF become `?`, so that echoed bytes cannot forge a line end.
fn push_safe(out: &mut Vec<u8>, line: &[u8]) {
    out.extend(line.iter().map(|&b| if b == b'\r' || b == b'\n' { b'?' } else { b }));
}

/// Why the reply stream cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A reply starts with something other than a code.
    #[error("a reply does not start with a three-digit code")]
    NoCode,
    /// A line above [`MAX_REPLY_LINE`].
    #[error("a reply line is longer than {MAX_REPLY_LINE} bytes")]
    LineTooLong,
    /// A reply above [`MAX_REPLY_BYTES`] or [`MAX_REPLY_LINES`].
    #[error("a reply is too large")]
    TooLarge,
}

/// Bytes in, replies out.
///
/// A multi-line reply ends only at a line with the same code and a space (RFC 959 §4.2). Between replies, lines that
/// do not start with a code and directly follow a 5yz reply are dropped: the reference server puts the client's own
/// CRLF inside some 501 texts, and the second half must not be taken for the next reply.
#[derive(Debug)]
pub struct ReplyParser {
    lines: LineSplitter,
    open: Option<Reply>,
    open_bytes: usize,
    after_5yz: bool,
    ready: VecDeque<Result<Reply, ReplyError>>,
    max_bytes: usize,
}

impl Default for ReplyParser {
    fn default() -> Self {
        Self::with_limits(MAX_REPLY_LINE, MAX_REPLY_BYTES)
    }
}

impl ReplyParser {
    /// A parser with its own limits, bytes.
    pub fn with_limits(max_line: usize, max_bytes: usize) -> Self {
        // Replies carry names as bytes, 0xFF included; servers do not send Telnet commands.
        let lines = LineSplitter::new(max_line).without_telnet();
        Self { lines, open: None, open_bytes: 0, after_5yz: false, ready: VecDeque::new(), max_bytes }
    }

    /// Takes bytes from the server.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.lines.feed(bytes);
        while let Some(line) = self.lines.next_line() {
            match line {
                Ok(line) => self.take_line(&line),
                Err(LineError::TooLong { .. }) => self.fail(ReplyError::LineTooLong),
            }
        }
    }

    /// The next complete reply, or the fault that stands in its place.
    pub fn next_reply(&mut self) -> Option<Result<Reply, ReplyError>> {
        self.ready.pop_front()
    }

    /// Takes the middle lines that have come so far of a 2yz reply that is not complete.
    ///
    /// For listings longer than memory (MLSC): what is taken here counts no more towards the limits and is missing in the reply.
    pub fn take_middle_lines(&mut self) -> Vec<Vec<u8>> {
        match &mut self.open {
            Some(reply) if reply.is_success() => {
                self.open_bytes = 0;
                reply.lines.split_off(1)
            }
            _ => Vec::new(),
        }
    }

    /// True in the middle of a reply: an end of the stream here is a truncation.
    pub fn is_mid_reply(&self) -> bool {
        self.open.is_some() || self.lines.is_mid_line()
    }

    fn fail(&mut self, error: ReplyError) {
        self.open = None;
        self.ready.push_back(Err(error));
    }

    fn take_line(&mut self, line: &[u8]) {
        match self.open.take() {
            Some(reply) => self.continue_reply(reply, line),
            None => self.start_reply(line),
        }
    }

    fn start_reply(&mut self, line: &[u8]) {
        let Some((code, separator, text)) = split_code(line) else {
            // The tail of a 501 text that was cut by an echoed CRLF, or an empty line.
            if !self.after_5yz && !line.is_empty() {
                self.fail(ReplyError::NoCode);
            }
            return;
        };
        self.open_bytes = text.len();
        let reply = Reply { code, lines: vec![text.to_vec()] };
        if separator == b'-' { self.open = Some(reply) } else { self.finish(reply) }
    }

    fn continue_reply(&mut self, mut reply: Reply, line: &[u8]) {
        // Each line costs its allocation too, so a flood of empty lines meets the limit.
        self.open_bytes += line.len() + 32;
        if self.open_bytes > self.max_bytes || reply.lines.len() >= MAX_REPLY_LINES {
            self.fail(ReplyError::TooLarge);
            return;
        }
        match split_code(line) {
            Some((code, b' ', text)) if code == reply.code => {
                reply.lines.push(text.to_vec());
                self.finish(reply);
                return;
            }
            Some((code, b'-', text)) if code == reply.code => reply.lines.push(text.to_vec()),
            // RFC 2389 §3.2: feature lines start with one space, which is no part of the text.
            _ => reply.lines.push(line.strip_prefix(b" ").unwrap_or(line).to_vec()),
        }
        self.open = Some(reply);
    }

    fn finish(&mut self, reply: Reply) {
        self.after_5yz = reply.class() == ReplyClass::Permanent;
        self.ready.push_back(Ok(reply));
    }
}

/// Code, separator and text of a line `NNN text` or `NNN-text`; a bare `NNN` counts as `NNN `.
fn split_code(line: &[u8]) -> Option<(u16, u8, &[u8])> {
    let (digits, rest) = line.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) || !(b'1'..=b'6').contains(&digits[0]) {
        return None;
    }
    let code = digits.iter().fold(0u16, |n, &b| n * 10 + u16::from(b - b'0'));
    match rest.split_first() {
        None => Some((code, b' ', b"")),
        Some((&separator @ (b' ' | b'-'), text)) => Some((code, separator, text)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
