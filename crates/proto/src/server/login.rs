//! Greeting, login, logout and status.

use super::answer::Answer;
use super::config::ServerConfig;
use super::data;
use super::event::{CloseReason, LoginOutcome, Secret};
use super::session::{Account, Phase, Session};
use super::step::{Step, Task};
use crate::op::Mode;

/// 220, with the administrator's banner before it (RFC 959 §5.4).
pub(super) fn greeting(config: &ServerConfig) -> Answer {
    let last = format!("{} GridFTP Server {} ready.", config.host, config.software);
    match &config.banner {
        None => Answer::line(220, last),
        Some(banner) => Answer::coded(220, banner.lines().map(|line| line.as_bytes().to_vec()).collect(), last),
    }
}

/// USER (RFC 959 §4.1.1); a second login needs REIN first (GCT practice).
pub(super) fn user(session: &mut Session, config: &ServerConfig, name: Vec<u8>) -> Step {
    if session.is_logged_in() {
        return already();
    }
    let guest = config.anonymous && (name.eq_ignore_ascii_case(b"anonymous") || name.eq_ignore_ascii_case(b"ftp"));
    let text = match guest {
        true => b"Anonymous login; any password will do.".to_vec(),
        false => [b"Password required for ", name.as_slice(), b"."].concat(),
    };
    session.phase = Phase::Named(name);
    Step::Answer(Answer::line(331, text))
}

/// PASS (RFC 959 §4.1.1).
pub(super) fn password(session: &mut Session, password: Secret) -> Step {
    match std::mem::replace(&mut session.phase, Phase::Fresh) {
        Phase::In(account) => {
            session.phase = Phase::In(account);
            already()
        }
        Phase::Named(user) => Step::Login { user, password },
        Phase::Fresh => Step::Answer(Answer::line(503, "Login with USER first.")),
    }
}

fn already() -> Step {
    Step::Answer(Answer::line(503, "You are already logged in."))
}

/// The reply to the driver's verdict on a login.
pub(super) fn verdict(session: &mut Session, config: &ServerConfig, outcome: LoginOutcome) -> Step {
    match outcome {
        LoginOutcome::Accepted { user, home } => {
            let answer = Answer::line(230, format!("User {user} logged in."));
            session.cwd.clone_from(&home);
            session.phase = Phase::In(Account { user, home });
            Step::Answer(answer)
        }
        LoginOutcome::Denied => {
            session.failures += 1;
            if session.failures >= config.max_login_failures {
                return Step::Close(Answer::line(421, "Too many failed logins."), CloseReason::LoginFailures);
            }
            Step::Answer(Answer::line(530, "Login incorrect."))
        }
        LoginOutcome::Unavailable(text) => Step::Close(Answer::line(421, text), CloseReason::Unavailable),
    }
}

/// REIN (RFC 959 §4.1.1): back to the greeting, the data handle closed.
pub(super) fn reinitialise(session: &mut Session, config: &ServerConfig) -> Step {
    match data::drop_handle(session) {
        Some(op) => Step::run(op, Task::Reinitialise),
        None => reinitialised(session, config),
    }
}

/// The rest of REIN; failed logins still count.
pub(super) fn reinitialised(session: &mut Session, config: &ServerConfig) -> Step {
    *session = Session { failures: session.failures, ..Session::new(config) };
    Step::Answer(greeting(config))
}

/// QUIT (RFC 959 §4.1.1).
pub(super) fn quit() -> Step {
    Step::Close(Answer::line(221, "Goodbye."), CloseReason::Quit)
}

/// 530 for what needs a login.
pub(super) fn required() -> Step {
    Step::Answer(Answer::line(530, "Please login with USER and PASS."))
}

/// STAT without argument (RFC 959 §4.1.3): 211, with the running command if there is one.
pub(super) fn status(session: &Session, config: &ServerConfig, running: Option<(&String, Option<u64>)>) -> Answer {
    let mut answer = Answer::listing(211, "GridFTP server status.", "End.").with(&config.software);
    if let Some(account) = session.account() {
        answer.push(format!("Logged in as {}", account.user));
    }
    let kind = if session.ascii { "ASCII" } else { "Image" };
    let mode = if session.params.mode == Mode::Extended { "Extended block" } else { "Stream" };
    answer.push(format!("TYPE: {kind}; STRU: File; MODE: {mode}; Parallelism: {}", session.params.parallelism));
    if let Some((verb, moved)) = running {
        answer.push(match moved {
            Some(bytes) => format!("{verb} is running: {bytes} bytes moved"),
            None => format!("{verb} is running"),
        });
    }
    answer
}
