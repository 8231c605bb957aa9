//! Bytes to lines: CRLF or a bare LF ends one, length is bounded, Telnet commands are stripped.

/// Default limit of a line without its end, bytes.
pub const DEFAULT_MAX_LINE: usize = 16 * 1024;

/// Memory that an idle splitter may keep, bytes.
const KEPT: usize = 4096;

/// Telnet "interpret as command" (RFC 854).
const IAC: u8 = 255;
/// First of the Telnet commands (SE).
const FIRST_COMMAND: u8 = 240;
/// The data mark of the Synch signal.
const DATA_MARK: u8 = 242;
/// WILL, WONT, DO, DONT: an option byte follows.
const NEGOTIATIONS: std::ops::RangeInclusive<u8> = 251..=254;

/// Why a line was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line was longer than the limit; reading goes on after its end.
    #[error("a line is longer than {limit} bytes")]
    TooLong {
        /// The limit, bytes.
        limit: usize,
    },
}

/// Incremental splitter.
///
/// RFC 959 §5.3.1 ends a command with CRLF. A bare LF ends one here too: people type them into `nc` and the reference
/// server, which waits for ever instead, gains nobody. Telnet commands in front of the verb are removed, because RFC 959 §4.1.3 has ABOR preceded by
/// `IAC IP IAC DM`. Behind the verb every byte stays: clients do not agree on doubling 255 in names, and the reference server takes it as it comes.
#[derive(Debug)]
pub struct LineSplitter {
    buffer: Vec<u8>,
    /// Start of what was not yet returned.
    start: usize,
    /// Everything before this index of `buffer` holds no LF.
    scanned: usize,
    limit: usize,
    telnet: bool,
    overlong: bool,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_LINE)
    }
}

impl LineSplitter {
    /// A splitter that refuses lines longer than `limit` bytes, the end not counted.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, scanned: 0, limit, telnet: true, overlong: false }
    }

    /// Changes the limit for the lines that end from now on, bytes.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The bytes of the unfinished line, as they came; empty for a line that is too long already.
    pub fn partial(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Bytes of memory held.
    pub fn held(&self) -> usize {
        self.buffer.capacity()
    }

    /// Forgets everything that was not returned.
    pub fn clear(&mut self) {
        *self = Self { telnet: self.telnet, ..Self::new(self.limit) };
    }

    /// Keeps every byte, 255 included.
    pub fn without_telnet(mut self) -> Self {
        self.telnet = false;
        self
    }

    /// Adds bytes; a caller that takes all lines after each call holds at most one line beyond what it fed.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line without its end, or the fault in its place; `None` when more bytes are needed.
    pub fn next_line(&mut self) -> Option<Result<Vec<u8>, LineError>> {
        match self.buffer[self.scanned..].iter().position(|&b| b == b'\n') {
            Some(at) => Some(self.cut(self.scanned + at)),
            None => self.shorten(),
        }
    }

    /// True if bytes of an unfinished line are held.
    pub fn is_mid_line(&self) -> bool {
        self.start < self.buffer.len() || self.overlong
    }

    /// Takes the line that ends with the LF at `end`.
    fn cut(&mut self, end: usize) -> Result<Vec<u8>, LineError> {
        let raw = &self.buffer[self.start..end];
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        let too_long = std::mem::take(&mut self.overlong) || raw.len() > self.limit;
        let line = match (too_long, self.telnet) {
            (true, _) => Err(LineError::TooLong { limit: self.limit }),
            (_, true) => Ok(strip_telnet(raw).to_vec()),
            _ => Ok(raw.to_vec()),
        };
        self.start = end + 1;
        self.scanned = self.start;
        if self.start == self.buffer.len() && self.buffer.capacity() > KEPT {
            self.release();
        }
        line
    }

    fn release(&mut self) {
        self.buffer = Vec::new();
        self.start = 0;
        self.scanned = 0;
    }

    /// Without a line end in sight: drops what already exceeds the limit.
    fn shorten(&mut self) -> Option<Result<Vec<u8>, LineError>> {
        // One byte of slack for the CR of a line of exactly the limit.
        if self.overlong || self.buffer.len() - self.start > self.limit + 1 {
            self.overlong = true;
            self.release();
        }
        self.scanned = self.buffer.len();
        None
    }
}

/// The line without Telnet commands in front of its verb.
pub(crate) fn strip_telnet(mut raw: &[u8]) -> &[u8] {
    let mut seen = false;
    loop {
        raw = match raw {
            [IAC, command, _, rest @ ..] if NEGOTIATIONS.contains(command) => rest,
            [IAC, FIRST_COMMAND..=254, rest @ ..] => rest,
            // RFC 959 §4.1.3: of the Synch signal, the data mark may arrive alone when its IAC travels as urgent data.
            [DATA_MARK, rest @ ..] if seen => rest,
            _ => return raw,
        };
        seen = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(splitter: &mut LineSplitter) -> Vec<Result<Vec<u8>, LineError>> {
        std::iter::from_fn(|| splitter.next_line()).collect()
    }

    #[test]
    fn crlf_and_bare_lf_end_a_line_and_a_bare_cr_does_not() {
        let mut s = LineSplitter::default();
        s.feed(b"A\r\nB\nC\rD\r\n\r\nE");
        assert_eq!(all(&mut s), [Ok(b"A".to_vec()), Ok(b"B".to_vec()), Ok(b"C\rD".to_vec()), Ok(vec![])]);
        assert!(s.is_mid_line());
        s.feed(b"\n");
        assert_eq!(all(&mut s), [Ok(b"E".to_vec())]);
        assert!(!s.is_mid_line());
    }

    #[test]
    fn an_overlong_line_is_one_error_and_the_next_line_is_read() {
        let mut s = LineSplitter::new(4);
        s.feed(b"1234\r\n12345\r\nok\r\n");
        assert_eq!(all(&mut s), [Ok(b"1234".to_vec()), Err(LineError::TooLong { limit: 4 }), Ok(b"ok".to_vec())]);
        for _ in 0..100 {
            s.feed(b"xxxxxxxx");
            assert_eq!(s.next_line(), None);
            assert!(s.buffer.len() <= 8);
        }
        s.feed(b"\r\nNOOP\r\n");
        assert_eq!(all(&mut s), [Err(LineError::TooLong { limit: 4 }), Ok(b"NOOP".to_vec())]);
    }

    #[test]
    fn memory_of_giant_lines_is_given_back() {
        let mut s = LineSplitter::new(1 << 20);
        s.feed(&[b'x'; 100_000]);
        s.feed(b"\r\n");
        assert_eq!(s.next_line().unwrap().unwrap().len(), 100_000);
        assert_eq!(s.held(), 0);
        s.set_limit(10);
        s.feed(&[b'x'; 100_000]);
        assert_eq!((s.next_line(), s.held(), s.partial()), (None, 0, &b""[..]));
        s.clear();
        s.feed(b"ok\n");
        assert_eq!(s.next_line(), Some(Ok(b"ok".to_vec())));
    }

    #[test]
    fn a_line_of_exactly_the_limit_may_come_in_pieces() {
        let mut s = LineSplitter::new(4);
        s.feed(b"1234\r");
        assert_eq!(s.next_line(), None);
        s.feed(b"\n");
        assert_eq!(s.next_line(), Some(Ok(b"1234".to_vec())));
    }

    // RFC 959 §4.1.3: "1. User system inserts the Telnet "Interrupt Process" (IP) signal ... 2. ... "Synch" signal."
    #[test]
    fn abor_behind_telnet_interrupt_and_synch_is_found() {
        let mut s = LineSplitter::default();
        s.feed(b"\xff\xf4\xff\xf2ABOR\r\n\xff\xf4\xf2ABOR\r\n\xff\xfb\x01NOOP\r\n");
        assert_eq!(all(&mut s), [Ok(b"ABOR".to_vec()), Ok(b"ABOR".to_vec()), Ok(b"NOOP".to_vec())]);
    }

    #[test]
    fn bytes_of_names_survive() {
        let mut s = LineSplitter::default();
        s.feed(b"RETR a\xff\xffb\xffc\x00\x80\r\n");
        assert_eq!(s.next_line(), Some(Ok(b"RETR a\xff\xffb\xffc\x00\x80".to_vec())));
        let mut plain = LineSplitter::default().without_telnet();
        plain.feed(b"\xff\xf4b\r\n");
        assert_eq!(plain.next_line(), Some(Ok(b"\xff\xf4b".to_vec())));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..200), cut in 1usize..20, limit in 1usize..30) {
            let mut whole = LineSplitter::new(limit);
            whole.feed(&bytes);
            let want = all(&mut whole);
            let mut pieces = LineSplitter::new(limit);
            let mut got = Vec::new();
            for piece in bytes.chunks(cut) {
                pieces.feed(piece);
                got.extend(all(&mut pieces));
            }
            prop_assert_eq!(got, want);
        }
    }
}
