//! Greeting, login and status.

use super::answer::Answer;
use super::config::ServerConfig;
use super::event::{CloseReason, LoginOutcome};
use super::session::{Account, Phase, Session};
use super::step::Step;

/// 220, with the administrator's banner before it (RFC 959 §5.4).
pub(super) fn greeting(config: &ServerConfig) -> Answer {
    let last = format!("{} GridFTP Server {} ready.", config.host, config.software);
    match &config.banner {
        None => Answer::line(220, last),
        Some(banner) => Answer::coded(
            220,
            banner
                .lines()
                .map(|line| line.as_bytes().to_vec())
                .collect(),
            last,
        ),
    }
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
            session.phase = Phase::Fresh;
            session.failures += 1;
            if session.failures >= config.max_login_failures {
                return Step::Close(
                    Answer::line(421, "Too many failed logins."),
                    CloseReason::LoginFailures,
                );
            }
            Step::Answer(Answer::line(530, "Login incorrect."))
        }
        LoginOutcome::Unavailable(text) => {
            Step::Close(Answer::line(421, text), CloseReason::Unavailable)
        }
    }
}

/// 211: STAT without argument (RFC 959 §4.1.3).
pub(super) fn status(
    _session: &Session,
    config: &ServerConfig,
    running: Option<(&String, Option<u64>)>,
) -> Answer {
    let mut answer = Answer::listing(211, "GridFTP server status.", "End.").with(&config.software);
    if let Some((verb, moved)) = running {
        answer.push(moved.map_or_else(
            || format!("{verb} is running"),
            |n| format!("{verb} is running, {n} bytes moved"),
        ));
    }
    answer
}
