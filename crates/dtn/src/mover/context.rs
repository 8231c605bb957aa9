//! On whose behalf a mover works, for logs.

use whimbrel_engine::journal::Writer;
use whimbrel_trust::clock::now;

use super::failure::Problem;
use super::message::Identity;

/// Identity and labels of one mover.
#[derive(Debug)]
pub struct Context {
    identity: Identity,
    task: Option<String>,
    client: Option<String>,
}

impl Context {
    /// A mover without labels.
    pub fn new(identity: Identity) -> Self {
        Self { identity, task: None, client: None }
    }

    /// Sets the labels that are given.
    pub fn label(&mut self, task: Option<String>, client: Option<String>) {
        self.task = task.or(self.task.take());
        self.client = client.or(self.client.take());
    }

    /// Refuses operations of a login whose credential has come to its end: what was handed ahead of that.
    pub fn check_time(&self) -> Result<(), Problem> {
        match self.identity.rules.is_over(now().secs) {
            true => Err(Problem::LoginOver),
            false => Ok(()),
        }
    }

    /// Whose the parts are that it writes of unfinished files.
    pub fn writer(&self) -> Writer {
        Writer(self.identity.login)
    }

    /// Name for logs.
    pub fn user(&self) -> &str {
        &self.identity.user
    }

    /// `TASKID` of the transfer log.
    pub fn task(&self) -> &str {
        self.task.as_deref().unwrap_or("none")
    }

    /// What SITE CLIENTINFO said.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }
}
