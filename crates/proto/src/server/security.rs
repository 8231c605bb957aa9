//! What a clear login answers to the security commands, and LANG.

use super::answer::Answer;
use super::step::Step;
use crate::command::{Command, Dcau, Protection};

/// Accepts what asks for no protection, refuses the rest in the way that lets clients go on in clear (RFC 2228 §3,
/// GFD.20 §3.1); other commands come back.
pub(super) fn refuse(command: Command) -> Result<Step, Command> {
    let (code, text) = match command {
        Command::Auth(_) => (504, "Unknown authentication type.".to_owned()),
        Command::Adat(_) => (503, "Send AUTH first.".to_owned()),
        Command::Ccc => (533, "The control connection is not protected.".to_owned()),
        Command::Pbsz(size) => (200, format!("PBSZ={size}")),
        Command::Prot(Protection::Clear) => (200, "Protection level set to C.".to_owned()),
        Command::Prot(level) => (536, format!("{} protection level not supported.", letter(level))),
        Command::Dcau(Dcau::None) => (200, "DCAU N.".to_owned()),
        Command::Dcau(Dcau::Myself) => (504, "DCAU A needs an authenticated login.".to_owned()),
        Command::Dcau(Dcau::Subject(_)) => (504, "DCAU S needs an authenticated login.".to_owned()),
        Command::Dcsc(_) => (504, "Data channel credentials need an authenticated login.".to_owned()),
        other => return Err(other),
    };
    Ok(Step::Answer(Answer::line(code, text)))
}

fn letter(level: Protection) -> char {
    match level {
        Protection::Clear => 'C',
        Protection::Safe => 'S',
        Protection::Confidential => 'E',
        Protection::Private => 'P',
    }
}

/// LANG (RFC 2640 §4): English is all there is.
pub(super) fn language(language: Option<&[u8]>) -> Step {
    let known = language.is_none_or(|tag| tag.len() >= 2 && tag[..2].eq_ignore_ascii_case(b"EN"));
    Step::Answer(match known {
        true => Answer::line(200, "lang set to EN."),
        false => Answer::line(504, "This language is not available."),
    })
}
