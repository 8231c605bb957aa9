//! What a command leads to, and what becomes of an operation's notices and outcome.

use bytes::BytesMut;

use super::answer::Answer;
use super::config::ServerConfig;
use super::event::{CloseReason, Label, Secret};
use super::failure;
use super::session::Session;
use crate::op::{Notice, Op, Outcome};

/// The next step of the running command.
#[derive(Debug)]
#[allow(dead_code, reason = "built by the handlers that follow")]
pub(super) enum Step {
    /// The final reply.
    Answer(Answer),
    /// The final reply and a label for the logs.
    Label(Label, Answer),
    /// Ask the driver about a login.
    Login { user: Vec<u8>, password: Secret },
    /// Run an operation, after a preliminary reply if there is one.
    Run {
        before: Option<Answer>,
        op: Op,
        task: Box<Task>,
    },
    /// The final reply, then the end.
    Close(Answer, CloseReason),
}

/// What a running operation is for.
#[derive(Debug)]
pub(super) enum Task {
    /// This answer if it succeeds.
    Simple(Answer),
}

impl Task {
    /// Appends the preliminary reply that a notice stands for.
    pub(super) fn notice(&mut self, _notice: Notice, _out: &mut BytesMut) {}

    /// What follows from the outcome.
    pub(super) fn finish(
        self,
        _session: &mut Session,
        _config: &ServerConfig,
        outcome: Outcome,
        _aborted: bool,
    ) -> Step {
        match (self, outcome) {
            (_, Outcome::Failed(failure)) => Step::Answer(failure::answer(&failure)),
            (Self::Simple(answer), _) => Step::Answer(answer),
        }
    }

    /// Bytes moved so far, for STAT.
    pub(super) fn bytes_moved(&self) -> Option<u64> {
        None
    }
}
