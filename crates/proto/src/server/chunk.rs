//! SITE LEAVES and SITE CHUNK: digests in replies, and files written in chunks (our own).

use std::ops::Range;

use super::answer::Answer;
use super::config::ServerConfig;
use super::session::Session;
use super::step::{Step, Task};
use super::{checksum, failure, files};
use crate::command::Chunk;
use crate::op::{ChunkedFile, Leaf, LeafSpec, Op, Outcome};
use crate::{holes, leaf};

/// SITE LEAVES: digests in the final replies of transfers from now on.
pub(super) fn leaves(session: &mut Session, config: &ServerConfig, spec: Option<LeafSpec>) -> Step {
    let known = spec.map(|spec| known_spec(config, spec)).transpose();
    Step::Answer(match known {
        Ok(spec) => {
            session.leaves = spec;
            Answer::line(200, "OK.")
        }
        Err(refusal) => refusal,
    })
}

/// SITE READBACK: whether leaves of what is stored are those of storage itself, from now on.
pub(super) fn read_back(session: &mut Session, config: &ServerConfig, disk: bool) -> Step {
    if config.checksums.is_empty() {
        return Step::Answer(checksum::unknown());
    }
    session.past_memory = disk;
    Step::Answer(Answer::line(200, "OK."))
}

fn known_spec(config: &ServerConfig, spec: LeafSpec) -> Result<LeafSpec, Answer> {
    let algorithm = checksum::known_for_leaves(config, &spec.algorithm).ok_or_else(checksum::unknown)?;
    Ok(LeafSpec { algorithm, ..spec })
}

/// SITE CHUNK; COMMIT takes the time and mode of a SITE STORATTR before it.
pub(super) fn chunk(session: &mut Session, config: &ServerConfig, chunk: Chunk) -> Step {
    let op = match chunk {
        Chunk::Open(file) => return open(session, config, file),
        Chunk::Keep { session: id, leaves, path } => {
            Op::KeepLeaves { path: session.resolve(&path), session: id, leaves }
        }
        Chunk::Holes { session: id, holes, path } => Op::KeepHoles { path: session.resolve(&path), session: id, holes },
        Chunk::Commit { session: id, path } => {
            let once = std::mem::take(&mut session.once);
            let (modified, mode, expected) = (once.modified, once.mode, once.checksum);
            let path = session.resolve(&path);
            return commit(config, Op::CommitChunked { path, session: id, modified, mode, expected });
        }
        Chunk::Drop { session: id, path } => Op::DropChunked { path: session.resolve(&path), session: id },
    };
    files::change(config, op)
}

/// A file that must have a checksum may be read for long before it is answered.
fn commit(config: &ServerConfig, op: Op) -> Step {
    if config.read_only {
        return Step::Answer(failure::read_only());
    }
    Step::run(op, Task::CommitChunked)
}

/// 250 once the file has its name.
pub(super) fn finish_commit(outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Failed(failure) => failure::answer(&failure),
        _ => Answer::line(250, "OK."),
    })
}

fn open(session: &Session, config: &ServerConfig, file: ChunkedFile) -> Step {
    if config.read_only {
        return Step::Answer(failure::read_only());
    }
    let known = if file.leaves.algorithm == leaf::NONE { Ok(file.leaves) } else { known_spec(config, file.leaves) };
    match known {
        Ok(leaves) => {
            let path = session.resolve(&file.path);
            Step::run(Op::OpenChunked(ChunkedFile { path, leaves, ..file }), Task::OpenChunked)
        }
        Err(refusal) => Step::Answer(refusal),
    }
}

/// SITE EXTENTS: which leaves of a file are holes.
pub(super) fn extents(session: &Session, leaf: u64, path: &[u8]) -> Step {
    Step::run(Op::Extents { path: session.resolve(path), leaf }, Task::Extents)
}

/// `250-` with bytes of data and holes.
pub(super) fn finish_extents(outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Extents { holes, data } => {
            with_holes(Answer::listing(250, "Extents.", "End").with(holes::data_line(data)), &holes)
        }
        other => failure::unexpected(other),
    })
}

/// What is above the limit of a reply is left out: its zeros are moved like other bytes.
fn with_holes(answer: Answer, holes: &[Range<u64>]) -> Answer {
    holes.iter().take(leaf::MAX_LEAVES).fold(answer, |answer, hole| answer.with(holes::line(hole)))
}

/// `250-` with the session, what planning wants to know, and what is proven already.
pub(super) fn finish_open(outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Chunked { session, verified, holes, storage, discarded } => {
            let answer = Answer::listing(250, "Ready for chunks.", "End").with(leaf::session_line(&session));
            let facts = holes::storage_lines(&storage).chain(holes::discarded_line(discarded));
            let answer = facts.fold(answer, Answer::with);
            with_holes(with_leaves(answer, &verified), &holes)
        }
        other => failure::unexpected(other),
    })
}

/// 226 of a transfer, with the digests of its leaves and more lines, if there are any.
pub(super) fn complete(leaves: &[Leaf], lines: Vec<String>) -> Answer {
    if leaves.is_empty() && lines.is_empty() {
        return Answer::line(226, "Transfer Complete.");
    }
    let answer = with_leaves(Answer::listing(226, "Transfer Complete.", "End"), leaves);
    lines.into_iter().fold(answer, Answer::with)
}

/// Leaves above the limit of a reply are left out: to the client they are not proven.
fn with_leaves(answer: Answer, leaves: &[Leaf]) -> Answer {
    leaves.iter().take(leaf::MAX_LEAVES).fold(answer, |answer, leaf| answer.with(leaf::line(leaf)))
}
