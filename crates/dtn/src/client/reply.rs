//! The one table that turns refusals into faults.

use std::io;
use std::time::Duration;

use whimbrel_engine::{Fault, FaultCode, Retry, Side};
use whimbrel_proto::reply::Reply;
use whimbrel_proto::reply::error_body::{ErrorBody, ErrorCause, cause_of};

/// Texts that tell more than their code, where no cause is named; most telling first.
const TEXTS: &[(&str, FaultCode)] = &[
    // Our own server.
    ("the source changed while it was read", FaultCode::SourceChanged),
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
    let code = telling(reply, subject).unwrap_or_else(|| by_code(reply.code));
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

/// What the reply says beyond its code, if it may be believed: first what is there for programs, then its words.
fn telling(reply: &Reply, subject: &[u8]) -> Option<FaultCode> {
    // The words of a purely syntactic answer, or of one about the session, prove nothing.
    if matches!(reply.code, 421 | 501 | 502 | 503 | 504 | 530..=539) {
        return None;
    }
    let body = ErrorBody::parse(reply);
    let told = body.as_ref().and_then(|body| by_cause(&body.cause).or_else(|| by_errno(body.errno?)));
    let told = match told {
        Some(FaultCode::StorageBusy) => lack(&text(&without_paths(reply, subject))).or(told),
        told => told,
    };
    told.or_else(|| {
        let words = without_paths(reply, subject);
        cause_of(&words).and_then(|cause| by_cause(&cause)).or_else(|| by_text(&text(&words)))
    })
}

/// What a server of ours lacks that says it is busy, if it says so: then nobody else has the file.
pub(super) fn lack(text: &str) -> Option<FaultCode> {
    let lacks = [FaultCode::TooManyOpen, FaultCode::OutOfMemory];
    lacks.into_iter().find(|code| text.contains(&code.to_string()))
}

/// The reply without the names of files, whose words say nothing: `subject`, its last component, and whatever begins with a
/// slash.
fn without_paths(reply: &Reply, subject: &[u8]) -> Reply {
    let subject = String::from_utf8_lossy(subject);
    let name = subject.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let plain = |line: &Vec<u8>| {
        let line = without_name(&without_name(&String::from_utf8_lossy(line), &subject), name);
        let is_path = |word: &&str| word.trim_start_matches(['"', '\'', '(', '`']).starts_with('/');
        line.split(' ').filter(|word| !is_path(word)).collect::<Vec<_>>().join(" ")
    };
    Reply::from_lines(reply.code, reply.lines.iter().map(plain))
}

/// The line without a name, where that is not a part of a word; one that is a word that means something stays.
fn without_name(line: &str, name: &str) -> String {
    if name.is_empty() || TEXTS.iter().any(|(words, _)| words.eq_ignore_ascii_case(name)) {
        return line.to_owned();
    }
    let mut rest = String::with_capacity(line.len());
    let mut copied = 0;
    for (at, _) in line.match_indices(name) {
        let end = at + name.len();
        let begins = !line[..at].ends_with(char::is_alphanumeric);
        if begins && !line[end..].starts_with(char::is_alphanumeric) {
            rest.push_str(&line[copied..at]);
            copied = end;
        }
    }
    rest + &line[copied..]
}

/// What a Linux error number says.
fn by_errno(errno: i32) -> Option<FaultCode> {
    const EIO: i32 = 5;
    const EAGAIN: i32 = 11;
    let code = FaultCode::from_io(&io::Error::from_raw_os_error(errno));
    (errno != EAGAIN && (code != FaultCode::StorageIo || errno == EIO)).then_some(code)
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
    fn words_in_names_of_files_say_nothing() {
        let of = |text: &str, subject: &str| fault(&Reply::line(550, text), "retrieve", subject.as_bytes()).code;
        assert_eq!(of("/pub/busybox.img: refused", "/pub/busybox.img"), FaultCode::PeerRefused);
        assert_eq!(of("busybox.img: refused", "/pub/busybox.img"), FaultCode::PeerRefused);
        assert_eq!(of("Cannot open \"/srv/data/checksums\"", "data/checksums"), FaultCode::PeerRefused);
        assert_eq!(of("my no such file x: Permission denied", "my no such file x"), FaultCode::PermissionDenied);
        assert_eq!(of("/data/is a directory/f: File exists", "/data/is a directory/f"), FaultCode::AlreadyExists);
        // What is said of them does, also in the words that are their names.
        assert_eq!(of("/pub/a: Device or resource busy", "/pub/a"), FaultCode::StorageBusy);
        assert_eq!(of("Resource busy", "/pub/busy"), FaultCode::StorageBusy);
        assert_eq!(of("a already exists", "a"), FaultCode::AlreadyExists);
    }

    #[test]
    fn an_error_number_tells_more_than_words() {
        let body = |errno: i32| {
            let (head, errno) = ("GlobusError: v=1 c=INTERNAL_ERROR".to_owned(), format!("GridFTP-Errno: {errno}"));
            code_of(&Reply::from_lines(451, [head, errno, "GridFTP-Error-String: checksum of /x".to_owned()]))
        };
        assert_eq!(body(30), FaultCode::ReadOnly);
        assert_eq!(body(5), FaultCode::StorageIo);
        assert_eq!(body(9999), FaultCode::ChecksumMismatch, "a number that says nothing");
    }

    #[test]
    fn a_server_of_ours_that_lacks_something_does_not_have_the_file_busy() {
        let busy = |reason: &str| {
            let lines = ["GlobusError: v=1 c=INTERNAL_ERROR", "GridFTP-Errno: 16", reason];
            code_of(&Reply::from_lines(450, lines.map(str::to_owned)))
        };
        for code in [FaultCode::TooManyOpen, FaultCode::OutOfMemory, FaultCode::StorageBusy] {
            assert_eq!(busy(&format!("GridFTP-Reason: open /nope: {code}")), code);
        }
    }

    #[test]
    fn a_refused_verb_is_a_missing_function_and_421_is_worth_waiting() {
        assert_eq!(code_of(&Reply::line(500, "Command not supported.")), FaultCode::NotSupported);
        assert!(fault(&Reply::line(421, "Idle Timeout: closing."), "x", b"").is_temporary());
        assert_eq!(code_of(&Reply::line(530, "Login incorrect: file not found")), FaultCode::LoginFailed);
    }
}
