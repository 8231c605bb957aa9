//! Failures of the data side as replies.

use super::answer::Answer;
use crate::op::{Failure, FailureKind, Outcome};
use crate::reply::error_body::{ErrorBody, ErrorCause};

/// How clients are told about one class of failure.
enum Shape {
    /// A structured reply: code, cause, errno (0: none) and its text.
    Structured(u16, ErrorCause, i32, &'static str),
    /// The text alone.
    Plain(u16),
}

/// Codes and names of the reference server; where its 4xx would make clients repeat what cannot succeed (a directory
/// that is not empty), or its 500 hides what happened, RFC 959 §5.4 decides.
fn shape(kind: FailureKind) -> Shape {
    use ErrorCause as C;
    use Shape::{Plain, Structured};
    match kind {
        FailureKind::NotFound => Structured(550, C::PathNotFound, 2, "No such file or directory"),
        FailureKind::PermissionDenied => Structured(550, C::PermissionDenied, 13, "Permission denied"),
        FailureKind::NotADirectory => Structured(550, C::NotADirectory, 20, "Not a directory"),
        FailureKind::IsADirectory => Structured(550, C::IsADirectory, 21, "Is a directory"),
        FailureKind::Exists => Structured(553, C::PathExists, 17, "File exists"),
        FailureKind::NotEmpty => Structured(550, C::InternalError, 39, "Directory not empty"),
        FailureKind::BadPath => Structured(550, C::PermissionDenied, 22, "Invalid argument"),
        FailureKind::NoSpace => Structured(552, C::NoSpaceLeft, 28, "No space left on device"),
        FailureKind::FileTooLarge => Structured(552, C::InternalError, 27, "File too large"),
        FailureKind::ReadOnly => Structured(550, C::InternalError, 30, "Read-only file system"),
        FailureKind::Quota => Structured(552, C::QuotaExceeded, 122, "Disk quota exceeded"),
        FailureKind::Checksum => Structured(550, C::IncorrectChecksum, 0, "Bad checksum"),
        FailureKind::CannotConnect => Structured(425, C::DataChannelFailure, 111, "Connection refused"),
        FailureKind::ConnectionBroken => Structured(426, C::DataChannelFailure, 104, "Connection reset by peer"),
        FailureKind::BadData => Structured(426, C::DataChannelFailure, 71, "Protocol error"),
        FailureKind::Busy => Structured(450, C::InternalError, 16, "Device or resource busy"),
        // No error number means this.
        FailureKind::SourceChanged => Structured(451, C::InternalError, 0, "The source changed while it was read"),
        FailureKind::Other => Structured(451, C::InternalError, 5, "Input/output error"),
        FailureKind::NoDataHandle => Plain(425),
        FailureKind::NotSupported => Plain(504),
        FailureKind::BadArgument => Plain(501),
        FailureKind::Aborted => Plain(426),
        FailureKind::Unproven => Plain(554),
        FailureKind::NotProtected => Plain(522),
        FailureKind::LoginOver => Plain(421),
    }
}

/// The final reply for a failed operation, in the structured form of GCT practice.
pub(super) fn answer(failure: &Failure) -> Answer {
    let (code, cause, errno, text) = match shape(failure.kind) {
        Shape::Plain(code) => return text_only(code, &failure.text),
        Shape::Structured(code, cause, errno, text) => (code, cause, errno, text),
    };
    let (computed, expected) = failure.checksums.clone().unzip();
    let reason = failure.text.lines().collect::<Vec<_>>().join("; ");
    let body = ErrorBody {
        cause,
        errno: (errno != 0).then_some(errno),
        reason: Some(reason),
        text: Some(text.to_owned()),
        computed,
        expected,
    };
    Answer::coded(code, body.lines().into_iter().map(String::into_bytes).collect(), "End.")
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
