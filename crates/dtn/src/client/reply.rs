//! The one table that turns refusals into faults.

use std::time::Duration;

use whimbrel_engine::{Fault, FaultCode, Retry, Side};
use whimbrel_proto::reply::Reply;
use whimbrel_proto::reply::error_body::{ErrorCause, cause_of};

/// Texts that tell more than their code, where no cause is named; most telling first.
const TEXTS: &[(&str, FaultCode)] = &[
    ("not found", FaultCode::NotFound),
    ("does not exist", FaultCode::NotFound),
    ("operation not permitted", FaultCode::PermissionDenied),
    ("read-only file system", FaultCode::ReadOnly),
    ("read only", FaultCode::ReadOnly),
    // The stock server, when the other end of a data connection does not prove what it must.
    ("authentication operation failed", FaultCode::CredentialRejected),
    ("directory not empty", FaultCode::DirectoryNotEmpty),
    ("already exists", FaultCode::AlreadyExists),
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
    // The stock server, when its data connection is closed between its last block and the end of the file.
    ("handle not in the proper state", FaultCode::ConnectionLost),
    // The same, of what it was doing on one data connection when another was reset.
    ("operation was canceled", FaultCode::ConnectionLost),
    ("too many open files", FaultCode::TooManyOpen),
    ("too many connections", FaultCode::ServerBusy),
    ("busy", FaultCode::StorageBusy),
    ("input/output error", FaultCode::StorageIo),
    ("not supported", FaultCode::NotSupported),
    ("not implemented", FaultCode::NotSupported),
    ("unknown command", FaultCode::NotSupported),
];

/// The text for people, on one line, without the filler around structured errors.
pub fn text(reply: &Reply) -> String {
    let parts: Vec<String> = reply
        .lines
        .iter()
        .map(|line| String::from_utf8_lossy(line).trim().to_owned())
        .filter(|line| !line.is_empty() && line != "End." && line != "End")
        .collect();
    parts.join("; ")
}

/// Words of servers, ours first, that take no login over a connection in clear.
const CLEAR: &[&str] = &[
    "over a connection in clear",
    "must use encryption",
    "cleartext sessions are not accepted",
    "ssl/tls required",
    "tls is required",
    "requires tls",
];

/// Whether a login was refused because its password would be seen on the way (RFC 4217 §5 has 534 for it).
pub fn asks_for_protection(reply: &Reply) -> bool {
    let lower = text(reply).to_ascii_lowercase();
    reply.code == 534 || CLEAR.iter().any(|words| lower.contains(words))
}

/// The fault that a refusal stands for; the caller adds the side.
pub fn fault(reply: &Reply, op: &str, subject: &[u8]) -> Fault {
    let text = text(reply);
    let code = telling(reply, &text).unwrap_or_else(|| by_code(reply.code));
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

/// What the text says, if it may be believed.
fn telling(reply: &Reply, text: &str) -> Option<FaultCode> {
    // The words of a purely syntactic answer, or of one about the session, prove nothing.
    if matches!(reply.code, 421 | 501 | 502 | 503 | 504 | 530..=539) {
        return None;
    }
    cause_of(reply).and_then(|cause| by_cause(&cause)).or_else(|| by_text(text))
}

fn by_cause(cause: &ErrorCause) -> Option<FaultCode> {
    Some(match cause {
        ErrorCause::PathNotFound => FaultCode::NotFound,
        ErrorCause::PermissionDenied => FaultCode::PermissionDenied,
        ErrorCause::NotADirectory => FaultCode::NotADirectory,
        ErrorCause::IsADirectory => FaultCode::IsADirectory,
        ErrorCause::PathExists => FaultCode::AlreadyExists,
        ErrorCause::NoSpaceLeft => FaultCode::NoSpace,
        ErrorCause::QuotaExceeded => FaultCode::QuotaExceeded,
        ErrorCause::IncorrectChecksum => FaultCode::ChecksumMismatch,
        ErrorCause::DataChannelFailure => FaultCode::ConnectionLost,
        ErrorCause::InternalError | ErrorCause::Other(_) => return None,
    })
}

fn by_text(text: &str) -> Option<FaultCode> {
    let lower = text.to_ascii_lowercase();
    TEXTS.iter().find(|(words, _)| lower.contains(words)).map(|&(_, code)| code)
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

    fn code_of(reply: &Reply) -> FaultCode {
        fault(reply, "retrieve", b"/nope").code
    }

    #[test]
    fn an_unstructured_500_is_told_apart_by_its_text() {
        let reply = Reply::from_lines(
            500,
            [
                "Command failed. : globus_l_gfs_file_open failed.",
                "globus_xio: Unable to open file /nope",
                "globus_xio: System error in open: No such file or directory",
                "End.",
            ],
        );
        assert_eq!(code_of(&reply), FaultCode::NotFound);
        assert!(!fault(&reply, "retrieve", b"/nope").to_string().contains("End."));
    }

    #[test]
    fn a_data_connection_that_the_stock_server_lost_is_worth_a_retry() {
        for text in [
            "Command failed. : [globus_ftp_control]:globus_ftp_control_data_send_eof() : Handle not in the proper state",
            "Command failed. : callback failed.; an I/O operation was cancelled; globus_xio: Operation was canceled",
        ] {
            let fault = fault(&Reply::line(500, text), "retrieve", b"/f");
            assert_eq!((fault.code, fault.side), (FaultCode::ConnectionLost, Some(Side::Network)), "{text}");
            assert!(fault.is_temporary());
        }
    }

    #[test]
    fn servers_that_take_no_password_in_clear_say_so_in_their_own_words() {
        for text in [
            "Passwords are not taken over a connection in clear: send AUTH TLS first.",
            "Non-anonymous sessions must use encryption.",
            "SSL/TLS required on the control channel",
        ] {
            assert!(asks_for_protection(&Reply::line(530, text)), "{text}");
        }
        assert!(!asks_for_protection(&Reply::line(530, "Login incorrect.")));
    }

    #[test]
    fn a_structured_error_is_told_by_its_cause_and_an_unspecific_one_by_its_text() {
        let body =
            |cause: &str, text: &str| Reply::from_lines(550, [&format!("GlobusError: v=1 c={cause}"), text, "End."]);
        assert_eq!(code_of(&body("QUOTA_EXCEEDED", "No such file")), FaultCode::QuotaExceeded);
        let text = "GridFTP-Error-String: Read-only file system";
        assert_eq!(code_of(&body("INTERNAL_ERROR", text)), FaultCode::ReadOnly);
        assert_eq!(code_of(&body("SOMETHING_NEW", "odd")), FaultCode::PeerRefused);
    }

    #[test]
    fn a_refused_verb_is_a_missing_function_and_421_is_worth_waiting() {
        assert_eq!(code_of(&Reply::line(500, "Command not supported.")), FaultCode::NotSupported);
        assert!(fault(&Reply::line(421, "Idle Timeout: closing."), "x", b"").is_temporary());
        assert_eq!(code_of(&Reply::line(530, "Login incorrect: file not found")), FaultCode::LoginFailed);
    }
}
