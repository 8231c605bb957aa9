//! What a command leads to, and what becomes of an operation's notices and outcome.

use bytes::BytesMut;

use super::answer::Answer;
use super::config::ServerConfig;
use super::event::{CloseReason, Label, Proof, Secret};
use super::listing::{Contents, StatusOf};
use super::session::{PassiveKind, Session};
use super::transfer::{Progress, Transfer};
use super::{checksum, chunk, data, failure, files, listing, login, probe, secure};
use crate::op::{Mode, Notice, Op, Outcome};
use crate::timeval::Timestamp;

/// The next step of the running command.
#[derive(Debug)]
pub(super) enum Step {
    /// The final reply.
    Answer(Answer),
    /// The final reply and a label for the logs.
    Label(Label, Answer),
    /// Ask the driver about a login.
    Login { user: Vec<u8>, proof: Proof },
    /// The final reply, then TLS.
    StartTls(Answer),
    /// Ask the driver about a token.
    Token(Secret),
    /// Run an operation, after a preliminary reply if there is one.
    Run { before: Option<Answer>, op: Box<Op>, task: Box<Task> },
    /// The final reply, then the end.
    Close(Answer, CloseReason),
}

impl Step {
    /// Runs an operation.
    pub(super) fn run(op: Op, task: Task) -> Self {
        Self::Run { before: None, op: Box::new(op), task: Box::new(task) }
    }
}

/// What a running operation is for.
#[derive(Debug)]
pub(super) enum Task {
    /// This answer if it succeeds.
    Simple(Answer),
    /// REIN: forget the login once the data side let go of the handle.
    Reinitialise,
    /// PASV and its kin, or a transfer that begins with one.
    Passive { kind: PassiveKind, mode: Mode, then: Option<Transfer> },
    /// SITE RELAY.
    Relay,
    /// PORT and its kin, or a transfer that names its target.
    Active { mode: Mode, then: Option<Transfer> },
    /// A transfer or listing over the data handle.
    Transfer(Progress),
    /// MLSC.
    Contents(Contents),
    /// STAT of a path.
    StatusOf(StatusOf),
    /// MLST of this path.
    Facts { path: Vec<u8> },
    /// SIZE.
    Size,
    /// MDTM, and what to set if it turns out to be the setting form.
    Modified { set: Option<(Timestamp, Vec<u8>)> },
    /// CWD.
    EnterDirectory,
    /// MKD.
    MakeDirectory,
    /// RNFR of this path.
    RenameFrom(Vec<u8>),
    /// CKSM.
    Checksum,
    /// SITE CHUNK OPEN.
    OpenChunked,
    /// SITE CHUNK COMMIT.
    CommitChunked,
    /// SITE EXTENTS.
    Extents,
    /// SITE PROBE.
    Probe,
    /// DCSC; `given`: with a credential.
    Credential { given: bool },
}

/// A bound for a data side gone wrong: real servers have a few hundred stripes at most.
pub(super) const MAX_STRIPES: usize = 4096;

impl Task {
    /// Appends the preliminary reply that a notice stands for.
    pub(super) fn notice(&mut self, notice: Notice, out: &mut BytesMut) {
        match self {
            Self::Transfer(progress) => progress.notice(notice, out),
            Self::Contents(contents) => contents.notice(notice, out),
            Self::StatusOf(status) => status.notice(notice, out),
            Self::Checksum | Self::CommitChunked => checksum::notice(&notice, out),
            Self::Probe => probe::notice(&notice, out),
            _ => {}
        }
    }

    /// What follows from the outcome; `aborted`: ABOR asked for the end.
    pub(super) fn finish(
        self,
        session: &mut Session,
        config: &ServerConfig,
        outcome: Outcome,
        aborted: bool,
        out: &mut BytesMut,
    ) -> Step {
        match self {
            Self::Transfer(progress) => progress.finish(session, outcome, aborted, out),
            Self::StatusOf(status) => status.finish(outcome),
            _ if aborted && matches!(outcome, Outcome::Failed(_)) => {
                Step::Answer(Answer::line(451, "Command aborted."))
            }
            Self::Reinitialise => login::reinitialised(session, config),
            Self::Passive { kind, mode, then } => {
                let cancelled = aborted && then.is_some();
                let step = data::finish_passive(session, config, (kind, mode, then), outcome);
                if cancelled { aborted_before_it_began() } else { step }
            }
            Self::Active { mode, then } => {
                let cancelled = aborted && then.is_some();
                let step = data::finish_active(session, (mode, then), outcome);
                if cancelled { aborted_before_it_began() } else { step }
            }
            Self::Relay => data::finish_relay(outcome),
            Self::Contents(contents) => contents.finish(outcome),
            Self::Facts { path } => listing::finish_facts(&path, outcome),
            Self::Size => files::finish_size(outcome),
            Self::Modified { set } => files::finish_modified(config, set, outcome),
            Self::EnterDirectory => files::finish_enter(session, outcome),
            Self::MakeDirectory => files::finish_make(outcome),
            Self::RenameFrom(path) => files::finish_rename_from(session, path, outcome),
            Self::Checksum => checksum::finish(outcome),
            Self::OpenChunked => chunk::finish_open(outcome),
            Self::CommitChunked => chunk::finish_commit(outcome),
            Self::Extents => chunk::finish_extents(outcome),
            Self::Probe => probe::finish(outcome),
            Self::Credential { given } => secure::finish_credential(session, given, outcome),
            Self::Simple(answer) => Step::Answer(match outcome {
                Outcome::Failed(failure) => failure::answer(&failure),
                _ => answer,
            }),
        }
    }

    /// True if the outcome changes nothing that the dispatch of a transfer over the same handle looks at.
    pub(super) fn leaves_session(&self) -> bool {
        matches!(
            self,
            Self::Transfer(_)
                | Self::Checksum
                | Self::Simple(_)
                | Self::Size
                | Self::Facts { .. }
                | Self::OpenChunked
                | Self::Extents
                | Self::CommitChunked
        )
    }

    /// True if the first lines of the final reply are sent, so that no other reply may be.
    pub(super) fn is_mid_reply(&self) -> bool {
        matches!(self, Self::StatusOf(status) if status.has_begun())
    }

    /// Bytes moved so far, for STAT.
    pub(super) fn bytes_moved(&self) -> Option<u64> {
        match self {
            Self::Transfer(progress) => progress.bytes_moved(),
            _ => None,
        }
    }
}

/// ABOR came before the transfer was started, or before its data handle was ready.
pub(super) fn aborted_before_it_began() -> Step {
    Step::Answer(Answer::line(426, "Transfer aborted before it began."))
}
