//! Failures of the data side as replies.

use super::answer::Answer;
use crate::op::{Failure, FailureKind, Outcome};

/// How clients are told about one class of failure.
struct Shape {
    code: u16,
    /// The `c=` name and errno of a structured reply; `None`: the text alone.
    structured: Option<(&'static str, i32, &'static str)>,
}

const fn structured(code: u16, name: &'static str, errno: i32, text: &'static str) -> Shape {
    Shape { code, structured: Some((name, errno, text)) }
}

const fn plain(code: u16) -> Shape {
    Shape { code, structured: None }
}

const DATA_CHANNEL: &str = "DATA_CHANNEL_COMMUNICATION_FAILURE";

/// Codes and names of the reference server; where its 4xx would make clients repeat what cannot succeed (a directory
/// that is not empty), or its 500 hides what happened, RFC 959 §5.4 decides.
const fn shape(kind: FailureKind) -> Shape {
    match kind {
        FailureKind::NotFound => structured(550, "PATH_NOT_FOUND", 2, "No such file or directory"),
        FailureKind::PermissionDenied => structured(550, "PERMISSION_DENIED", 13, "Permission denied"),
        FailureKind::NotADirectory => structured(550, "NOT_A_DIRECTORY", 20, "Not a directory"),
        FailureKind::IsADirectory => structured(550, "IS_A_DIRECTORY", 21, "Is a directory"),
        FailureKind::Exists => structured(553, "PATH_EXISTS", 17, "File exists"),
        FailureKind::NotEmpty => structured(550, "INTERNAL_ERROR", 39, "Directory not empty"),
        FailureKind::BadPath => structured(550, "PERMISSION_DENIED", 22, "Invalid argument"),
        FailureKind::NoSpace => structured(552, "NO_SPACE_LEFT", 28, "No space left on device"),
        FailureKind::Quota => structured(552, "QUOTA_EXCEEDED", 122, "Disk quota exceeded"),
        FailureKind::Checksum => structured(550, "INCORRECT_CHECKSUM", 0, "Bad checksum"),
        FailureKind::CannotConnect => structured(425, DATA_CHANNEL, 111, "Connection refused"),
        FailureKind::ConnectionBroken => structured(426, DATA_CHANNEL, 104, "Connection reset by peer"),
        FailureKind::BadData => structured(426, DATA_CHANNEL, 71, "Protocol error"),
        FailureKind::Busy => structured(450, "INTERNAL_ERROR", 16, "Device or resource busy"),
        FailureKind::Other => structured(451, "INTERNAL_ERROR", 5, "Input/output error"),
        FailureKind::NoDataHandle => plain(425),
        FailureKind::NotSupported => plain(504),
        FailureKind::BadArgument => plain(501),
        FailureKind::Aborted => plain(426),
    }
}

/// The final reply for a failed operation, in the structured form of GCT practice.
pub(super) fn answer(failure: &Failure) -> Answer {
    let Shape { code, structured } = shape(failure.kind);
    let Some((name, errno, text)) = structured else {
        return text_only(code, &failure.text);
    };
    let mut lines = vec![format!("GlobusError: v=1 c={name}")];
    if let Some((computed, expected)) = &failure.checksums {
        lines.push(format!("GridFTP-Computed-Checksum: {computed}"));
        lines.push(format!("GridFTP-Expected-Checksum: {expected}"));
    } else if errno != 0 {
        lines.push(format!("GridFTP-Errno: {errno}"));
    }
    lines.extend(failure.text.lines().map(|line| format!("GridFTP-Reason: {line}")));
    lines.push(format!("GridFTP-Error-String: {text}"));
    Answer::coded(code, lines.into_iter().map(String::into_bytes).collect(), "End.")
}

fn text_only(code: u16, text: &str) -> Answer {
    let mut lines: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
    match lines.len() {
        0 => Answer::line(code, "Command failed."),
        1 => Answer::line(code, lines.remove(0)),
        _ => Answer::coded(code, lines, "End."),
    }
}

/// As [`answer`]; an outcome that does not fit its operation is an internal error.
pub(super) fn unexpected(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Failed(failure) => answer(&failure),
        _ => Answer::line(451, "Internal error: the outcome does not fit the command."),
    }
}

/// PASV and its kin failed: 425, whatever the reason (RFC 959 §5.4).
pub(super) fn no_data_connection(failure: &Failure) -> Answer {
    text_only(425, &failure.text)
}

/// A change was asked of a read-only server.
pub(super) fn read_only() -> Answer {
    answer(&Failure { kind: FailureKind::PermissionDenied, text: "This server is read-only.".into(), checksums: None })
}
