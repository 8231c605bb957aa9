//! Commands on names: CWD, MKD, RNFR, SIZE, MDTM, MFMT and the like.

use super::answer::Answer;
use super::config::ServerConfig;
use super::failure;
use super::session::Session;
use super::step::{Step, Task};
use crate::op::{FailureKind, Op, Outcome};
use crate::timeval::Timestamp;

/// Runs an operation that changes storage and answers `250 OK.`; refused on a read-only server.
pub(super) fn change(config: &ServerConfig, op: Op) -> Step {
    change_with(config, op, Answer::line(250, "OK."))
}

/// As [`change`], with another answer.
pub(super) fn change_with(config: &ServerConfig, op: Op, answer: Answer) -> Step {
    if config.read_only {
        return Step::Answer(failure::read_only());
    }
    Step::run(op, Task::Simple(answer))
}

/// PWD (RFC 959 §4.1.3): quotes in the name are doubled.
pub(super) fn print_directory(session: &Session) -> Step {
    Step::Answer(Answer::line(257, quoted(&session.cwd, b" is current directory.")))
}

/// CWD, CDUP (RFC 959 §4.1.1).
pub(super) fn enter(session: &Session, path: &[u8]) -> Step {
    Step::run(Op::EnterDirectory(session.resolve(path)), Task::EnterDirectory)
}

/// The directory to work in from now on.
pub(super) fn finish_enter(session: &mut Session, outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Directory(path) => {
            session.cwd = path;
            Answer::line(250, "CWD command successful.")
        }
        other => failure::unexpected(other),
    })
}

/// MKD (RFC 959 §4.1.3).
pub(super) fn make(session: &Session, config: &ServerConfig, path: &[u8]) -> Step {
    if config.read_only {
        return Step::Answer(failure::read_only());
    }
    Step::run(Op::MakeDirectory(session.resolve(path)), Task::MakeDirectory)
}

/// 257 with the absolute name in the form of RFC 959 appendix II, which clients take the name from.
pub(super) fn finish_make(outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Directory(path) => Answer::line(257, quoted(&path, b" directory created.")),
        other => failure::unexpected(other),
    })
}

/// RNFR (RFC 959 §4.1.3).
pub(super) fn rename_from(session: &mut Session, config: &ServerConfig, path: &[u8]) -> Step {
    session.rename_from = None;
    if config.read_only {
        return Step::Answer(failure::read_only());
    }
    let path = session.resolve(path);
    Step::run(Op::Exists(path.clone()), Task::RenameFrom(path))
}

/// The old name exists; RNTO may come.
pub(super) fn finish_rename_from(session: &mut Session, path: Vec<u8>, outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Failed(failure) => failure::answer(&failure),
        _ => {
            session.rename_from = Some(path);
            Answer::line(350, "OK. Send RNTO with destination name.")
        }
    })
}

/// RNTO (RFC 959 §4.1.3).
pub(super) fn rename_to(session: &mut Session, config: &ServerConfig, path: &[u8]) -> Step {
    match session.rename_from.take() {
        Some(from) => change(config, Op::Rename { from, to: session.resolve(path) }),
        None => Step::Answer(Answer::line(503, "Send RNFR first.")),
    }
}

/// SIZE (RFC 3659 §4): the exact number of bytes, in TYPE A too, as clients expect it.
pub(super) fn finish_size(outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Size(size) => Answer::line(213, size.to_string()),
        other => failure::unexpected(other),
    })
}

/// MDTM (RFC 3659 §3).
///
/// Everyday clients also set times with `MDTM YYYYMMDDHHMMSS path`; that is tried when no file has the whole argument
/// as its name.
pub(super) fn modified(session: &Session, path: &[u8]) -> Step {
    let set = timed_path(path).map(|(time, path)| (time, session.resolve(path)));
    Step::run(Op::Modified(session.resolve(path)), Task::Modified { set })
}

/// The time, or the attempt to set it.
pub(super) fn finish_modified(config: &ServerConfig, set: Option<(Timestamp, Vec<u8>)>, outcome: Outcome) -> Step {
    match (outcome, set) {
        (Outcome::Modified(secs, nanos), _) => Step::Answer(Answer::line(213, Timestamp { secs, nanos }.to_wire())),
        (Outcome::Failed(failure), Some((time, path))) if failure.kind == FailureKind::NotFound => {
            set_modified_absolute(config, time, path)
        }
        (other, _) => Step::Answer(failure::unexpected(other)),
    }
}

/// MFMT (draft-somers-ftp-mfxx §3.1): `213 Modify=…; path`.
pub(super) fn set_modified(session: &Session, config: &ServerConfig, time: Timestamp, path: &[u8]) -> Step {
    set_modified_absolute(config, time, session.resolve(path))
}

fn set_modified_absolute(config: &ServerConfig, time: Timestamp, path: Vec<u8>) -> Step {
    let text = [format!("Modify={}; ", time.to_wire()).as_bytes(), &path].concat();
    let op = Op::SetModified { path, seconds: time.secs, nanoseconds: time.nanos };
    change_with(config, op, Answer::line(213, text))
}

/// Splits `YYYYMMDDHHMMSS[.fraction] path`.
pub(super) fn timed_path(argument: &[u8]) -> Option<(Timestamp, &[u8])> {
    let space = argument.iter().position(|&b| b == b' ')?;
    let time = Timestamp::parse(&argument[..space]).ok()?;
    let path = &argument[space + 1..];
    (!path.is_empty()).then_some((time, path))
}

fn quoted(path: &[u8], after: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for &byte in path {
        text.push(byte);
        if byte == b'"' {
            text.push(byte);
        }
    }
    text.push(b'"');
    text.extend_from_slice(after);
    text
}
