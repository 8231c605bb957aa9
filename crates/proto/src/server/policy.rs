//! SITE POLICY (our own): the administrator's rules for files in chunks, as far as they are for this login and its label.

use super::answer::Answer;
use super::config::ServerConfig;
use super::session::Session;
use super::step::Step;
use crate::policy;

/// Those of others are not told.
pub(super) fn policy(session: &Session, config: &ServerConfig) -> Step {
    if config.rules.is_empty() {
        return Step::Answer(Answer::line(502, "SITE POLICY is not implemented."));
    }
    let user = session.account().map(|account| account.user.as_str());
    let label = session.label.as_deref();
    let own = config.rules.iter().filter(|rule| rule.is_for(user, label)).take(policy::MAX_RULES);
    let answer = Answer::listing(250, "Policy.", "End");
    Step::Answer(own.fold(answer, |answer, rule| answer.with(policy::line(&rule.rule))))
}
