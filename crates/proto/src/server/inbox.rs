//! Command lines as they arrive: cut at line ends, bounded, waiting their turn.

use std::collections::VecDeque;

use super::config::ServerConfig;
use crate::line::{LineSplitter, strip_telnet};

/// One command line, waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its end.
    Whole(Vec<u8>),
    /// A line above the limit, whose bytes are gone.
    TooLong,
    /// A transfer that an ABOR behind it cancelled before it began.
    Cancelled(Vec<u8>),
}

impl Line {
    /// Upper-case verb; empty for a line that was too long.
    pub(super) fn verb(&self) -> String {
        match self {
            Self::Whole(line) | Self::Cancelled(line) => verb(line),
            Self::TooLong => String::new(),
        }
    }

    /// True if the line is a verb without argument.
    pub(super) fn is_bare(&self) -> bool {
        matches!(self, Self::Whole(line) if line.trim_ascii_end().iter().all(u8::is_ascii_alphabetic))
    }

    fn len(&self) -> usize {
        match self {
            Self::Whole(line) | Self::Cancelled(line) => line.len(),
            Self::TooLong => 0,
        }
    }
}

/// The verb of a line: its first word in upper case, at most 8 letters of it, so that logs stay short and clean.
pub(super) fn verb(line: &[u8]) -> String {
    line.iter().take_while(|b| b.is_ascii_alphabetic()).take(8).map(|b| char::from(b.to_ascii_uppercase())).collect()
}

/// Bytes in, lines out.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    reading: LineSplitter,
    /// The LF of an ABOR that was taken without it may still come.
    late_lf: bool,
    waiting: VecDeque<Line>,
    waiting_bytes: usize,
}

impl Inbox {
    /// Takes bytes up to and including the next line end; returns the line and how many bytes were used.
    /// The limit holds for the line that ends here: it changes with the login.
    pub(super) fn feed(&mut self, bytes: &[u8], max_line: usize) -> (Option<Line>, usize) {
        if std::mem::take(&mut self.late_lf) && bytes.first() == Some(&b'\n') {
            return (None, 1);
        }
        let used = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |end| end + 1);
        self.reading.set_limit(max_line);
        self.reading.feed(&bytes[..used]);
        let line = self.reading.next_line().map(|line| line.map_or(Line::TooLong, Line::Whole));
        (line, used)
    }

    /// ABOR as soon as its CR is there, when nothing more has arrived.
    ///
    /// Clients send the line as urgent data (RFC 959 §4.1.3), and then its last byte, the LF, may be read late or never.
    pub(super) fn urgent_abort(&mut self) -> Option<Line> {
        if !strip_telnet(self.reading.partial()).eq_ignore_ascii_case(b"ABOR\r") {
            return None;
        }
        self.reading.clear();
        self.late_lf = true;
        Some(Line::Whole(b"ABOR".to_vec()))
    }

    /// Adds a line to the queue; false if that breaks the limits.
    pub(super) fn queue(&mut self, line: Line, config: &ServerConfig) -> bool {
        self.waiting_bytes += line.len();
        self.waiting.push_back(line);
        self.waiting.len() <= config.pipeline_limit && self.waiting_bytes <= config.pipeline_bytes
    }

    /// The next line to carry out.
    pub(super) fn pop(&mut self) -> Option<Line> {
        let line = self.waiting.pop_front()?;
        self.waiting_bytes -= line.len();
        Some(line)
    }

    /// The next line, if it is whole and wanted.
    pub(super) fn pop_if(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Option<Line> {
        match self.waiting.front() {
            Some(Line::Whole(line)) if wanted(line) => self.pop(),
            _ => None,
        }
    }

    /// Bytes held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.reading.held() + self.waiting_bytes
    }

    /// True if no line waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if the last line that waits has one of these verbs.
    pub(super) fn ends_with(&self, wanted: &[&str]) -> bool {
        self.waiting.back().is_some_and(|line| wanted.contains(&line.verb().as_str()))
    }

    /// True if a line with this verb waits.
    pub(super) fn holds(&self, wanted: &str) -> bool {
        self.waiting.iter().any(|line| line.verb() == wanted)
    }

    /// Marks the waiting lines that `is_transfer` names by verb as cancelled.
    pub(super) fn cancel(&mut self, is_transfer: impl Fn(&str) -> bool) {
        for line in &mut self.waiting {
            if let Line::Whole(text) = line
                && is_transfer(&verb(text))
            {
                *line = Line::Cancelled(std::mem::take(text));
            }
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Telnet "interpret as command" (RFC 854).
const IAC: u8 = 255;

/// Turns IAC IAC into the one byte it stands for (RFC 854); for clients that speak Telnet on the control connection.
pub(super) fn unescape_telnet(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        out.push(byte);
        if byte == IAC && bytes.peek() == Some(&IAC) {
            bytes.next();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_are_cut_at_crlf_and_at_bare_lf_across_reads() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.feed(b"NO", 100), (None, 2));
        assert_eq!(inbox.feed(b"OP\r\nPWD\n", 100), (Some(whole("NOOP")), 4));
        assert_eq!(inbox.feed(b"PWD\n", 100), (Some(whole("PWD")), 4));
    }

    #[test]
    fn a_line_of_exactly_the_limit_passes_and_one_more_byte_does_not() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.feed(b"NOOP\r\n", 4).0, Some(whole("NOOP")));
        assert_eq!(inbox.feed(b"NOOP1\r\n", 4).0, Some(Line::TooLong));
        assert_eq!(inbox.feed(b"NOOP\r", 4).0, None);
        assert_eq!(inbox.feed(b"\n", 4).0, Some(whole("NOOP")));
    }

    #[test]
    fn an_overlong_line_is_dropped_to_its_end_and_keeps_no_bytes() {
        let mut inbox = Inbox::default();
        for _ in 0..1000 {
            assert_eq!(inbox.feed(&[b'x'; 100], 10).0, None);
            assert!(inbox.held() <= 128);
        }
        assert_eq!(inbox.feed(b"\r\nPWD\r\n", 10), (Some(Line::TooLong), 2));
        assert_eq!(inbox.feed(b"PWD\r\n", 10).0, Some(whole("PWD")));
    }

    #[test]
    fn telnet_interrupts_before_a_verb_are_dropped() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.feed(b"\xff\xf4\xff\xf2ABOR\r\n", 100).0, Some(whole("ABOR")));
        assert_eq!(inbox.feed(b"\xff\xf4\xf2ABOR\r\n", 100).0, Some(whole("ABOR")));
        assert_eq!(inbox.feed(b"\xff\xfb\x01NOOP\r\n", 100).0, Some(whole("NOOP")));
        assert_eq!(inbox.feed(b"\xff\xfb\r\n", 100).0, Some(whole("")));
    }

    #[test]
    fn an_abor_is_taken_at_its_cr_and_its_lf_may_come_late_or_never() {
        let mut inbox = Inbox::default();
        for after in [&b"\nNOOP\r\n"[..], b"NOOP\r\n"] {
            assert_eq!(inbox.feed(b"\xff\xf4\xff\xf2abor\r", 100).0, None);
            assert_eq!(inbox.urgent_abort(), Some(whole("ABOR")));
            assert_eq!(inbox.urgent_abort(), None);
            let mut rest = after;
            let line = loop {
                let (line, used) = inbox.feed(rest, 100);
                rest = &rest[used..];
                if line.is_some() {
                    break line;
                }
            };
            assert_eq!((line, rest), (Some(whole("NOOP")), &b""[..]));
        }
        assert_eq!(inbox.feed(b"RETR ABOR\r", 100).0, None);
        assert_eq!(inbox.urgent_abort(), None, "the name of a file is no command");
        assert_eq!(inbox.feed(b"\n", 100).0, Some(whole("RETR ABOR")));
    }

    #[test]
    fn doubled_iac_is_one_byte() {
        assert_eq!(unescape_telnet(b"a\xff\xffb\xffc\xff\xff\xff\xff"), b"a\xffb\xffc\xff\xff");
    }

    #[test]
    fn the_queue_refuses_too_many_lines_and_too_many_bytes() {
        let config = ServerConfig { pipeline_limit: 2, pipeline_bytes: 10, ..ServerConfig::default() };
        let mut inbox = Inbox::default();
        assert!(inbox.queue(whole("NOOP"), &config));
        assert!(inbox.queue(whole("NOOP"), &config));
        assert!(!inbox.queue(whole("X"), &config));
        inbox.clear();
        assert!(!inbox.queue(whole("NOOP NOOP NOOP"), &config));
    }

    #[test]
    fn cancelling_touches_only_the_named_verbs() {
        let mut inbox = Inbox::default();
        let config = ServerConfig::default();
        assert!(inbox.queue(whole("RETR /a"), &config) && inbox.queue(whole("PWD"), &config));
        inbox.cancel(|verb| verb == "RETR");
        assert_eq!(inbox.pop(), Some(Line::Cancelled(b"RETR /a".to_vec())));
        assert_eq!(inbox.pop(), Some(whole("PWD")));
        assert!(inbox.is_empty());
    }
}
