//! Greeting, login, logout and status.

use super::answer::Answer;
use super::config::ServerConfig;
use super::data;
use super::event::{CloseReason, LoginOutcome, Proof, Secret};
use super::secure;
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
    if guest {
        session.phase = Phase::Named(name);
        return Step::Answer(Answer::line(331, "Anonymous login; any password will do."));
    }
    if let Some(refusal) = secure::no_clear_password(session, config) {
        session.phase = Phase::Fresh;
        return refusal;
    }
    session.phase = Phase::Named(name.clone());
    match session.security.suffices_at_user() {
        true => Step::Login { user: name, proof: Proof::Peer },
        false => Step::Answer(password_required(&name)),
    }
}

fn password_required(name: &[u8]) -> Answer {
    Answer::line(331, [b"Password required for ", name, b"."].concat())
}

/// PASS (RFC 959 §4.1.1).
pub(super) fn password(session: &mut Session, config: &ServerConfig, password: Secret) -> Step {
    match std::mem::replace(&mut session.phase, Phase::Fresh) {
        Phase::In(account) => {
            let again = session.security.let_in_at_user.then(|| welcome(&account.user));
            session.phase = Phase::In(account);
            again.map_or_else(already, Step::Answer)
        }
        Phase::Named(user) => Step::Login { user, proof: session.security.proof(password) },
        Phase::Fresh => secure::no_clear_password(session, config)
            .unwrap_or_else(|| Step::Answer(Answer::line(503, "Login with USER first."))),
    }
}

fn welcome(user: &str) -> Answer {
    Answer::line(230, format!("User {user} logged in."))
}

fn already() -> Step {
    Step::Answer(Answer::line(503, "You are already logged in."))
}

/// The reply to the driver's verdict on a login: asked at USER the name still stands there, asked at PASS it does not.
pub(super) fn verdict(session: &mut Session, config: &ServerConfig, outcome: LoginOutcome) -> Step {
    match (outcome, &session.phase) {
        (LoginOutcome::Accepted { user, home }, phase) => {
            let at_user = matches!(phase, Phase::Named(_));
            let answer = match at_user {
                // RFC 4217 §6.
                true => Answer::line(232, format!("User {user} logged in, authorized by its certificate.")),
                false => welcome(&user),
            };
            session.security.let_in_at_user = at_user;
            session.cwd.clone_from(&home);
            session.phase = Phase::In(Account { user, home });
            Step::Answer(answer)
        }
        (LoginOutcome::Denied, Phase::Named(name)) => Step::Answer(password_required(name)),
        (LoginOutcome::Denied, _) => refused(session, config, "Login incorrect.", Vec::new()),
        (LoginOutcome::Refused(lines), _) => refused(session, config, "Login incorrect.", lines),
        (LoginOutcome::Unavailable(text), _) => Step::Close(Answer::line(421, text), CloseReason::Unavailable),
    }
}

/// 530 for a failed login or exchange of tokens, with its reasons if there are any; too many end the connection.
pub(super) fn refused(session: &mut Session, config: &ServerConfig, what: &str, reasons: Vec<String>) -> Step {
    session.phase = Phase::Fresh;
    session.failures += 1;
    if session.failures >= config.max_login_failures {
        return Step::Close(Answer::line(421, "Too many failed logins."), CloseReason::LoginFailures);
    }
    if reasons.is_empty() {
        return Step::Answer(Answer::line(530, what));
    }
    let lines = std::iter::once(what.to_owned()).chain(reasons);
    Step::Answer(Answer::coded(530, lines.map(String::into_bytes).collect(), "End."))
}

/// REIN (RFC 959 §4.1.1): back to the greeting, the data handle closed.
pub(super) fn reinitialise(session: &mut Session, config: &ServerConfig) -> Step {
    match data::drop_handle(session) {
        Some(op) => Step::run(op, Task::Reinitialise),
        None => reinitialised(session, config),
    }
}

/// The rest of REIN; failed logins still count, and what protects the connection stays.
pub(super) fn reinitialised(session: &mut Session, config: &ServerConfig) -> Step {
    *session = Session { failures: session.failures, security: session.security.again(), ..Session::new(config) };
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
    if let Some(subject) = session.security.subject() {
        answer.push(format!("Authenticated as {subject}"));
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
