//! Replies of an FTP server, and the one table that turns refusals into faults.

use std::time::Duration;

use whimbrel_engine::{Fault, FaultCode, Retry, Side};

/// A complete reply (RFC 959 §4.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// Three digits; 0 only in the default value.
    pub code: u16,
    /// Text of every line: the code and its separator are cut where the line has them.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// Another reply to the same command follows.
    pub fn is_preliminary(&self) -> bool {
        self.code / 100 == 1
    }

    /// Done, or (3xx) ready for the next command of a sequence.
    pub fn is_ok(&self) -> bool {
        matches!(self.code / 100, 2 | 3)
    }

    /// The text for people, on one line, without the filler around structured errors.
    pub fn text(&self) -> String {
        let parts: Vec<String> = self
            .lines
            .iter()
            .map(|line| String::from_utf8_lossy(line).trim().to_owned())
            .filter(|line| !line.is_empty() && line != "End." && line != "End")
            .collect();
        parts.join("; ")
    }

    /// The lines between the first and the last, as sent.
    pub fn middle(&self) -> &[Vec<u8>] {
        match self.lines.len() {
            0..=2 => &[],
            n => &self.lines[1..n - 1],
        }
    }

    /// The first line's text.
    pub fn first(&self) -> &[u8] {
        self.lines.first().map_or(b"", Vec::as_slice)
    }
}

/// What one line adds to the reply in progress.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// A line of a multi-line reply that is not complete, with the reply's code.
    More(u16),
    /// The reply is complete.
    Complete(Reply),
}

/// Most bytes kept of one reply; the rest of its text is dropped, never the reply.
const MAX_TEXT: usize = 1 << 20;

/// Puts lines together to replies.
///
/// A multi-line reply ends only at its own code followed by a space, or by nothing (RFC 959 §4.2).
#[derive(Debug, Default)]
pub struct Assembler {
    open: Option<Reply>,
    kept: usize,
}

impl Assembler {
    /// Takes one line without its line end; `None`: the line is no part of any reply.
    pub fn line(&mut self, line: &[u8]) -> Option<Piece> {
        let head = code_of(line);
        if let Some(open) = &mut self.open {
            let last = head.is_some_and(|(code, more)| code == open.code && !more);
            let prefixed = head.is_some_and(|(code, _)| code == open.code);
            let text = if prefixed { line.get(4..).unwrap_or(b"") } else { line };
            if last || self.kept + text.len() <= MAX_TEXT {
                self.kept += text.len();
                open.lines.push(text.to_vec());
            }
            if !last {
                return Some(Piece::More(open.code));
            }
            return self.open.take().map(Piece::Complete);
        }
        let (code, more) = head?;
        let reply = Reply { code, lines: vec![line.get(4..).unwrap_or(b"").to_vec()] };
        if !more {
            return Some(Piece::Complete(reply));
        }
        self.kept = 0;
        self.open = Some(reply);
        Some(Piece::More(code))
    }

    /// Takes back the line just added, for callers that pass lines on as they come.
    pub fn take_line(&mut self) -> Option<Vec<u8>> {
        self.open.as_mut().filter(|open| open.lines.len() > 1).and_then(|open| open.lines.pop())
    }
}

/// Code, and whether a dash follows it.
fn code_of(line: &[u8]) -> Option<(u16, bool)> {
    let (digits, rest) = line.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) || !(b'1'..=b'6').contains(&digits[0]) {
        return None;
    }
    let code = digits.iter().fold(0, |n, &d| n * 10 + u16::from(d - b'0'));
    match rest.first() {
        None | Some(b' ') => Some((code, false)),
        Some(b'-') => Some((code, true)),
        Some(_) => None,
    }
}

/// Texts that tell more than their code, most telling first (the reference server answers 500 to
/// everything that fails while a file is opened).
const TEXTS: &[(&str, FaultCode)] = &[
    ("c=PATH_NOT_FOUND", FaultCode::NotFound),
    ("c=PERMISSION_DENIED", FaultCode::PermissionDenied),
    ("c=NOT_A_DIRECTORY", FaultCode::NotADirectory),
    ("c=IS_A_DIRECTORY", FaultCode::IsADirectory),
    ("c=NO_SPACE_LEFT", FaultCode::NoSpace),
    ("c=QUOTA_EXCEEDED", FaultCode::QuotaExceeded),
    ("c=PATH_EXISTS", FaultCode::AlreadyExists),
    ("c=INCORRECT_CHECKSUM", FaultCode::ChecksumMismatch),
    ("c=DATA_CHANNEL_COMMUNICATION_FAILURE", FaultCode::ConnectionLost),
    ("no such file", FaultCode::NotFound),
    ("not found", FaultCode::NotFound),
    ("does not exist", FaultCode::NotFound),
    ("permission denied", FaultCode::PermissionDenied),
    ("operation not permitted", FaultCode::PermissionDenied),
    ("read-only file system", FaultCode::ReadOnly),
    ("read only", FaultCode::ReadOnly),
    ("not a directory", FaultCode::NotADirectory),
    ("is a directory", FaultCode::IsADirectory),
    ("directory not empty", FaultCode::DirectoryNotEmpty),
    ("file exists", FaultCode::AlreadyExists),
    ("already exists", FaultCode::AlreadyExists),
    ("no space left", FaultCode::NoSpace),
    ("quota exceeded", FaultCode::QuotaExceeded),
    ("file too large", FaultCode::FileTooLarge),
    ("checksum", FaultCode::ChecksumMismatch),
    ("connection refused", FaultCode::ConnectionRefused),
    ("no route to host", FaultCode::HostUnreachable),
    ("unreachable", FaultCode::HostUnreachable),
    ("timed out", FaultCode::TimedOut),
    ("idle timeout", FaultCode::TimedOut),
    ("connection reset", FaultCode::ConnectionLost),
    ("broken pipe", FaultCode::ConnectionLost),
    ("an end-of-file was reached", FaultCode::ConnectionLost),
    ("too many open files", FaultCode::TooManyOpen),
    ("too many connections", FaultCode::ServerBusy),
    ("busy", FaultCode::StorageBusy),
    ("input/output error", FaultCode::StorageIo),
    ("not supported", FaultCode::NotSupported),
    ("not implemented", FaultCode::NotSupported),
    ("unknown command", FaultCode::NotSupported),
];

/// The fault that a refusal stands for; the caller adds the side.
pub fn fault(reply: &Reply, op: &str, subject: &[u8]) -> Fault {
    let text = reply.text();
    let code = by_text(reply.code, &text).unwrap_or_else(|| by_code(reply.code));
    let mut fault = Fault::new(code, op).on_path(subject).detail(format!("{} {}", reply.code, text));
    if reply.code == 421 {
        fault = fault.retry(Retry::Temporary { after: Duration::from_secs(5) });
    }
    if matches!(
        code,
        FaultCode::ConnectionRefused | FaultCode::HostUnreachable | FaultCode::ConnectionLost | FaultCode::TimedOut
    ) {
        fault = fault.side(Side::Network);
    }
    fault
}

fn by_text(code: u16, text: &str) -> Option<FaultCode> {
    // The words of a successful or purely syntactic answer prove nothing.
    if matches!(code, 421 | 501 | 502 | 503 | 504 | 530..=539) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    TEXTS.iter().find(|(words, _)| lower.contains(&words.to_ascii_lowercase())).map(|&(_, code)| code)
}

fn by_code(code: u16) -> FaultCode {
    match code {
        421 => FaultCode::ServerBusy,
        425 | 426 => FaultCode::ConnectionLost,
        430 | 530..=539 | 331 | 332 => FaultCode::LoginFailed,
        450 => FaultCode::StorageBusy,
        451 => FaultCode::StorageIo,
        452 | 552 => FaultCode::NoSpace,
        500 | 502 | 504 | 522 => FaultCode::NotSupported,
        501 => FaultCode::InvalidArgument,
        553 => FaultCode::InvalidPath,
        _ => FaultCode::PeerRefused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Vec<Reply> {
        let mut assembler = Assembler::default();
        let pieces = lines.iter().filter_map(|line| assembler.line(line.as_bytes()));
        pieces.filter_map(|piece| if let Piece::Complete(reply) = piece { Some(reply) } else { None }).collect()
    }

    #[test]
    fn a_reply_ends_only_at_its_own_code_and_a_space() {
        let replies = read(&["211-Features", " MODE", "220 not the end", "211-x", "211 End", "200 ok"]);
        assert_eq!(replies.len(), 2);
        assert_eq!(replies[0].middle(), [&b" MODE"[..], b"220 not the end", b"x"]);
        assert_eq!(replies[1].code, 200);
    }

    #[test]
    fn lines_between_replies_are_no_replies() {
        assert_eq!(read(&["II'", "", "ABC", "200ok", "200"]).len(), 1);
    }

    #[test]
    fn an_unstructured_500_is_told_apart_by_its_text() {
        let reply = &read(&[
            "500-Command failed. : globus_l_gfs_file_open failed.",
            "500-globus_xio: Unable to open file /nope",
            "500-globus_xio: System error in open: No such file or directory",
            "500 End.",
        ])[0];
        assert_eq!(fault(reply, "retrieve", b"/nope").code, FaultCode::NotFound);
    }

    #[test]
    fn a_refused_verb_is_a_missing_function_and_421_is_worth_waiting() {
        let reply = |code, text: &str| Reply { code, lines: vec![text.as_bytes().to_vec()] };
        assert_eq!(fault(&reply(500, "Command not supported."), "x", b"").code, FaultCode::NotSupported);
        assert!(fault(&reply(421, "Idle Timeout: closing."), "x", b"").is_temporary());
        assert_eq!(fault(&reply(530, "Login incorrect: file not found"), "x", b"").code, FaultCode::LoginFailed);
    }
}
