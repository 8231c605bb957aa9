//! Replies of the server, built line by line and written without a chance to break the framing.

use bytes::{BufMut, BytesMut};

/// One complete reply (RFC 959 §4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    code: u16,
    /// Lines before the last one; the first is written `NNN-text`.
    lines: Vec<Vec<u8>>,
    /// Every line, not only the first, is written `NNN-text`.
    prefix_all: bool,
    last: Vec<u8>,
}

impl Answer {
    /// `NNN text`.
    pub(super) fn line(code: u16, text: impl AsRef<[u8]>) -> Self {
        Self { code, lines: Vec::new(), prefix_all: false, last: text.as_ref().to_vec() }
    }

    /// `NNN-first`, middle lines with a leading space, `NNN last`.
    pub(super) fn listing(code: u16, first: impl AsRef<[u8]>, last: impl AsRef<[u8]>) -> Self {
        Self { code, lines: vec![first.as_ref().to_vec()], prefix_all: false, last: last.as_ref().to_vec() }
    }

    /// `NNN-line` for every line, `NNN last`: the form of error texts (GCT practice).
    pub(super) fn coded(code: u16, lines: Vec<Vec<u8>>, last: impl AsRef<[u8]>) -> Self {
        Self { code, lines, prefix_all: true, last: last.as_ref().to_vec() }
    }

    /// Adds a middle line.
    pub(super) fn push(&mut self, line: impl AsRef<[u8]>) {
        self.lines.push(line.as_ref().to_vec());
    }

    /// Adds a middle line.
    pub(super) fn with(mut self, line: impl AsRef<[u8]>) -> Self {
        self.push(line);
        self
    }

    /// Reply code.
    pub(super) fn code(&self) -> u16 {
        self.code
    }

    /// Appends the reply; CR, LF and NUL inside a line become `?`, so that no text can end a line.
    pub(super) fn write(&self, out: &mut BytesMut) {
        let code = self.code.to_string();
        for (index, line) in self.lines.iter().enumerate() {
            if index == 0 || self.prefix_all {
                out.put_slice(code.as_bytes());
                out.put_u8(b'-');
            } else {
                out.put_u8(b' ');
            }
            put_line(line, out);
        }
        out.put_slice(code.as_bytes());
        out.put_u8(b' ');
        put_line(&self.last, out);
    }
}

/// Appends text and CRLF with the guard described at [`Answer::write`].
pub(super) fn put_line(text: &[u8], out: &mut BytesMut) {
    let start = out.len();
    out.put_slice(text);
    for byte in &mut out[start..] {
        if matches!(*byte, b'\r' | b'\n' | 0) {
            *byte = b'?';
        }
    }
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(answer: &Answer) -> String {
        let mut out = BytesMut::new();
        answer.write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn shapes_are_those_of_rfc_959() {
        assert_eq!(text(&Answer::line(200, "OK.")), "200 OK.\r\n");
        let listing = Answer::listing(211, "Extensions supported", "End.").with("SIZE");
        assert_eq!(text(&listing), "211-Extensions supported\r\n SIZE\r\n211 End.\r\n");
        let coded = Answer::coded(550, vec![b"a".to_vec(), b"b".to_vec()], "End.");
        assert_eq!(text(&coded), "550-a\r\n550-b\r\n550 End.\r\n");
    }

    #[test]
    fn line_ends_inside_a_text_never_reach_the_wire() {
        assert_eq!(text(&Answer::line(257, "\"/a\r\n226 x\0\"")), "257 \"/a??226 x?\"\r\n");
    }
}
