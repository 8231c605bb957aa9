//! From a command line to a step.

use super::answer::Answer;
use super::config::ServerConfig;
use super::inbox::Line;
use super::session::Session;
use super::step::Step;

/// True for verbs whose operation an ABOR cancels before it began.
pub(super) fn is_transfer(verb: &str) -> bool {
    const TRANSFERS: [&str; 14] = [
        "RETR", "STOR", "APPE", "STOU", "ERET", "ESTO", "GET", "PUT", "LIST", "NLST", "MLSD",
        "MLSR", "MLSC", "CKSM",
    ];
    TRANSFERS.contains(&verb)
}

/// Carries out one line.
pub(super) fn dispatch(_session: &mut Session, _config: &ServerConfig, line: Line) -> Step {
    match line {
        Line::TooLong => Step::Answer(Answer::line(500, "Command line too long.")),
        Line::Cancelled(_) => Step::Answer(Answer::line(426, "Transfer aborted before it began.")),
        Line::Whole(_) => Step::Answer(Answer::line(500, "Command not supported.")),
    }
}
