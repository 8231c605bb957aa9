//! The structured error text of file-system commands, and the table from causes to codes and `c=` names.

use super::Reply;

/// Cause of a structured error reply; the wire knows more names, which are kept as [`ErrorCause::Other`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the wire names")]
pub enum ErrorCause {
    PathNotFound,
    PermissionDenied,
    NotADirectory,
    IsADirectory,
    PathExists,
    NoSpaceLeft,
    QuotaExceeded,
    IncorrectChecksum,
    DataChannelFailure,
    InternalError,
    Other(String),
}

const NAMES: [(ErrorCause, &str, u16); 10] = [
    (ErrorCause::PathNotFound, "PATH_NOT_FOUND", 550),
    (ErrorCause::PermissionDenied, "PERMISSION_DENIED", 550),
    (ErrorCause::NotADirectory, "NOT_A_DIRECTORY", 550),
    (ErrorCause::IsADirectory, "IS_A_DIRECTORY", 550),
    (ErrorCause::PathExists, "PATH_EXISTS", 553),
    (ErrorCause::NoSpaceLeft, "NO_SPACE_LEFT", 552),
    (ErrorCause::QuotaExceeded, "QUOTA_EXCEEDED", 552),
    (ErrorCause::IncorrectChecksum, "INCORRECT_CHECKSUM", 550),
    (ErrorCause::DataChannelFailure, "DATA_CHANNEL_COMMUNICATION_FAILURE", 425),
    (ErrorCause::InternalError, "INTERNAL_ERROR", 451),
];

impl ErrorCause {
    /// The `c=` name.
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => NAMES.iter().find(|(cause, ..)| cause == known).map_or("INTERNAL_ERROR", |(_, name, _)| name),
        }
    }

    /// The cause of a `c=` name, letter case ignored.
    pub fn from_name(name: &str) -> Self {
        NAMES
            .iter()
            .find(|(_, known, _)| known.eq_ignore_ascii_case(name))
            .map_or_else(|| Self::Other(name.to_owned()), |(cause, ..)| cause.clone())
    }

    /// The usual reply code when no errno decides it.
    pub fn code(&self) -> u16 {
        NAMES.iter().find(|(cause, ..)| cause == self).map_or(451, |(.., code)| *code)
    }
}

/// Reply code and cause for a Linux errno, as the reference server answers.
pub fn from_errno(errno: i32) -> (u16, ErrorCause) {
    use ErrorCause as C;
    match errno {
        2 => (550, C::PathNotFound),
        13 => (550, C::PermissionDenied),
        20 => (550, C::NotADirectory),
        21 => (550, C::IsADirectory),
        // EPERM, ESPIPE, EROFS.
        1 | 29 | 30 => (550, C::InternalError),
        28 => (552, C::NoSpaceLeft),
        122 => (552, C::QuotaExceeded),
        // EFBIG.
        27 => (552, C::InternalError),
        17 => (553, C::PathExists),
        // ECONNREFUSED; ECONNABORTED, ECONNRESET.
        111 => (425, C::DataChannelFailure),
        103 | 104 => (426, C::DataChannelFailure),
        // EBUSY, ETXTBSY, EAGAIN.
        16 | 26 | 11 => (450, C::InternalError),
        _ => (451, C::InternalError),
    }
}

/// The structured body `GlobusError: v=1 c=…` of an error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorBody {
    /// The cause.
    pub cause: ErrorCause,
    /// `GridFTP-Errno`.
    pub errno: Option<i32>,
    /// `GridFTP-Reason`.
    pub reason: Option<String>,
    /// `GridFTP-Error-String`.
    pub text: Option<String>,
    /// `GridFTP-Computed-Checksum`.
    pub computed: Option<String>,
    /// `GridFTP-Expected-Checksum`.
    pub expected: Option<String>,
}

impl ErrorBody {
    /// A body with only a cause.
    pub fn new(cause: ErrorCause) -> Self {
        Self { cause, errno: None, reason: None, text: None, computed: None, expected: None }
    }

    /// Lines without code and line end.
    pub fn lines(&self) -> Vec<String> {
        let fields = [
            ("GridFTP-Errno", self.errno.map(|n| n.to_string())),
            ("GridFTP-Reason", self.reason.clone()),
            ("GridFTP-Error-String", self.text.clone()),
            ("GridFTP-Computed-Checksum", self.computed.clone()),
            ("GridFTP-Expected-Checksum", self.expected.clone()),
        ];
        let head = format!("GlobusError: v=1 c={}", self.cause.name());
        let rest = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}: {}", value?)));
        std::iter::once(head).chain(rest).collect()
    }

    /// The reply; send it with [`Reply::encode_prefixed`], as every line carries the code.
    pub fn to_reply(&self, code: u16) -> Reply {
        let mut lines = self.lines();
        lines.push("End.".to_owned());
        Reply::from_lines(code, lines)
    }

    /// Finds the body in a reply; text before `GlobusError:` on its line is skipped (`550-P: Could not … : GlobusError: …`).
    pub fn parse(reply: &Reply) -> Option<Self> {
        let start = reply.lines.iter().position(|l| find(l, b"GlobusError:").is_some())?;
        let head = String::from_utf8_lossy(&reply.lines[start]).into_owned();
        let name = head.split_ascii_whitespace().find_map(|word| word.strip_prefix("c="))?;
        let mut body = Self::new(ErrorCause::from_name(name));
        for line in &reply.lines[start + 1..] {
            body.take_field(&String::from_utf8_lossy(line));
        }
        Some(body)
    }

    fn take_field(&mut self, line: &str) {
        let Some((name, value)) = line.trim_start().split_once(':') else { return };
        let value = value.trim().to_owned();
        match name {
            "GridFTP-Errno" => self.errno = value.parse().ok(),
            "GridFTP-Reason" => self.reason = Some(value),
            "GridFTP-Error-String" => self.text = Some(value),
            "GridFTP-Computed-Checksum" => self.computed = Some(value),
            "GridFTP-Expected-Checksum" => self.expected = Some(value),
            _ => {}
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// The cause of any error reply: from the structured body, else from the texts of system errors, which the reference server
/// sends for failed opens and others for everything; letter case does not matter.
pub fn cause_of(reply: &Reply) -> Option<ErrorCause> {
    if !reply.is_failure() {
        return None;
    }
    if let Some(body) = ErrorBody::parse(reply) {
        return Some(body.cause);
    }
    let text = reply.display_text().to_ascii_lowercase();
    let texts = [
        ("no such file", ErrorCause::PathNotFound),
        ("permission denied", ErrorCause::PermissionDenied),
        ("not a directory", ErrorCause::NotADirectory),
        ("is a directory", ErrorCause::IsADirectory),
        ("file exists", ErrorCause::PathExists),
        ("no space left", ErrorCause::NoSpaceLeft),
        ("quota exceeded", ErrorCause::QuotaExceeded),
    ];
    texts.into_iter().find(|(needle, _)| text.contains(needle)).map(|(_, cause)| cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::ReplyParser;

    const NOT_FOUND: &[u8] = b"550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n\
        550-GridFTP-Reason: System error in stat\r\n550-GridFTP-Error-String: No such file or directory\r\n550 End.\r\n";

    fn reply(bytes: &[u8]) -> Reply {
        let mut parser = ReplyParser::default();
        parser.feed(bytes);
        parser.next_reply().unwrap().unwrap()
    }

    #[test]
    fn the_real_servers_body_is_read_and_written_back() {
        let body = ErrorBody::parse(&reply(NOT_FOUND)).unwrap();
        assert_eq!(body.cause, ErrorCause::PathNotFound);
        assert_eq!(body.errno, Some(2));
        assert_eq!(body.text.as_deref(), Some("No such file or directory"));
        let mut out = Vec::new();
        body.to_reply(550).encode_prefixed(&mut out);
        assert_eq!(out, NOT_FOUND);
    }

    #[test]
    fn a_body_behind_other_text_is_found() {
        let r = reply(b"550-P: Could not change directory. : GlobusError: v=1 c=PERMISSION_DENIED\r\n550 End.\r\n");
        assert_eq!(cause_of(&r), Some(ErrorCause::PermissionDenied));
    }

    #[test]
    fn a_failed_open_is_recognised_by_its_text() {
        let r = reply(b"500-Command failed. : open failed.\r\n500-globus_xio: System error in open: No such file or directory\r\n500 End.\r\n");
        assert_eq!(cause_of(&r), Some(ErrorCause::PathNotFound));
        assert_eq!(cause_of(&reply(b"200 No such file.\r\n")), None);
        assert_eq!(cause_of(&reply(b"500 Odd.\r\n")), None);
    }

    #[test]
    fn names_and_errnos_follow_the_table() {
        for (cause, name, code) in NAMES {
            assert_eq!(ErrorCause::from_name(name), cause);
            assert_eq!(cause.code(), code);
        }
        assert_eq!(ErrorCause::from_name("NEW_ONE").name(), "NEW_ONE");
        assert_eq!(from_errno(17), (553, ErrorCause::PathExists));
        assert_eq!(from_errno(39), (451, ErrorCause::InternalError));
    }
}
