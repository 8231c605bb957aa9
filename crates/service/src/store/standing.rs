//! Changes of a task's standing that its owner, an administrator or the clock makes.

use serde_json::json;
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::{ItemState, Status};

use super::audit::{self, AuditEntry};
use super::database::values;
use super::tasks::{Changed, State, lock, uuid};
use super::time::micros;
use super::{Store, StoreError};
use crate::events::{self, code};
use crate::task::{Cancelled, Condition, Ends, Fatal, Held};

/// Tasks whose deadlines are looked after in one go.
const EXPIRED_AT_ONCE: i64 = 1000;

impl Store {
    /// Ends a task; what is not done stays so. Work on it is told to stop, and what it reports meanwhile is not taken.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn cancel(&self, task: Uuid, by: Uuid, message: &str, now: Timestamp) -> Result<Changed, StoreError> {
        self.cancel_as(task, Cancelled { by, message: message.to_owned(), manager_of: None }, now).await
    }

    /// The same by a manager of a collection.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn cancel_as(&self, task: Uuid, cancelled: Cancelled, now: Timestamp) -> Result<Changed, StoreError> {
        let entry = AuditEntry::new(now, cancelled.by.to_string(), "task.cancel", task.to_string());
        let entry = entry.detail(json!({"message": cancelled.message, "manager_of": cancelled.manager_of}));
        self.change_by(task, Some(entry), move |state| {
            let details = json!({"by": cancelled.by, "message": cancelled.message});
            let words = if cancelled.message.is_empty() { "the task was cancelled" } else { &cancelled.message };
            state.new_events.push(events::told(now, code::CANCELED, words, &details));
            let fatal = Fatal { code: code::CANCELED.into(), description: words.to_owned() };
            state.finish(ItemState::Canceled, Some(fatal), now);
            state.task.cancelled = Some(cancelled.clone());
            true
        })
        .await
        .map(|(changed, _)| changed)
    }

    /// Ends all tasks whose deadline has passed, and tells which.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn expire(&self, now: Timestamp) -> Result<Vec<Uuid>, StoreError> {
        let sql =
            "SELECT id FROM tasks WHERE status IN ('ACTIVE', 'INACTIVE') AND deadline <= $1 ORDER BY deadline LIMIT $2";
        let late = self.read().await?.query(sql, values![micros(now), EXPIRED_AT_ONCE]).await?;
        let mut ended = Vec::new();
        for mut row in late {
            let task = uuid(&row.text()?)?;
            let end = move |state: &mut State| {
                // It may have got another one in between.
                if state.task.wanted.deadline > now {
                    return false;
                }
                let words = "the deadline passed";
                state.new_events.push(events::told(now, code::EXPIRED, words, &json!({})));
                let fatal = Fatal { code: code::EXPIRED.into(), description: words.to_owned() };
                state.finish(ItemState::Expired, Some(fatal), now);
                true
            };
            ended.extend(self.change(task, end).await?.1.then_some(task));
        }
        Ok(ended)
    }

    /// Lets a task wait until [`Store::resume`]; work on it is told to stop.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn pause(&self, task: Uuid, message: &str, now: Timestamp) -> Result<Changed, StoreError> {
        self.pause_by(task, Ends::BOTH, message, None, now).await
    }

    /// The same, for who speaks for these ends; `entry` says who did it.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn pause_by(
        &self,
        task: Uuid,
        ends: Ends,
        message: &str,
        entry: Option<AuditEntry>,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let message = message.to_owned();
        let change = move |state: &mut State| hold(state, ends, &message, now);
        self.change_by(task, entry, change).await.map(|(changed, _)| changed)
    }

    /// Lets a task wait for as long as pause rules hold; one that somebody has paused stays theirs. Whether it changed.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn pause_by_rule(&self, task: Uuid, message: &str, now: Timestamp) -> Result<bool, StoreError> {
        let message = message.to_owned();
        let change = move |state: &mut State| match &state.task.condition {
            Condition::Paused { by_rule: false, .. } => false,
            Condition::Paused { message: before, .. } if *before == message => false,
            _ => pause(state, &message, None, now),
        };
        self.change(task, change).await.map(|(_, changed)| changed)
    }

    /// Lets a paused task go on, as soon as it is its turn.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn resume(&self, task: Uuid, now: Timestamp) -> Result<Changed, StoreError> {
        self.resume_by(task, Ends::BOTH, None, now).await.map(|(changed, _)| changed)
    }

    /// The same, for who speaks for these ends: it waits on where the managers of another hold it. `entry` says who did it.
    /// Returns whether it goes on, too.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn resume_by(
        &self,
        task: Uuid,
        ends: Ends,
        entry: Option<AuditEntry>,
        now: Timestamp,
    ) -> Result<(Changed, bool), StoreError> {
        let (changed, _) = self.change_by(task, entry, move |state| release(state, ends, now)).await?;
        let waits = self.task(task).await?.is_some_and(|task| task.condition.is_held());
        Ok((changed, !waits))
    }

    /// Lets a task go on that pause rules have paused, and nobody else. Whether it changed.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn resume_by_rule(&self, task: Uuid, now: Timestamp) -> Result<bool, StoreError> {
        let change = move |state: &mut State| match state.task.condition {
            Condition::Paused { by_rule: true, .. } => resume(state, now),
            _ => false,
        };
        self.change(task, change).await.map(|(_, changed)| changed)
    }

    /// Lets a task go on that waited for a credential.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn activate(&self, task: Uuid, now: Timestamp) -> Result<Changed, StoreError> {
        self.change(task, move |state| {
            if state.task.status != Status::Inactive {
                return false;
            }
            state.task.status = Status::Active;
            state.task.not_before = None;
            state.new_events.push(events::told(now, code::UNPAUSED, "goes on with another credential", &json!({})));
            state.show(Condition::Queued);
            true
        })
        .await
        .map(|(changed, _)| changed)
    }

    /// Changes a task that is not over; `change` tells whether it did.
    async fn change(
        &self,
        task: Uuid,
        change: impl Fn(&mut State) -> bool + Clone + Send + Sync + 'static,
    ) -> Result<(Changed, bool), StoreError> {
        self.change_by(task, None, change).await
    }

    /// The same; `entry` is kept if it did.
    async fn change_by(
        &self,
        task: Uuid,
        entry: Option<AuditEntry>,
        change: impl Fn(&mut State) -> bool + Clone + Send + Sync + 'static,
    ) -> Result<(Changed, bool), StoreError> {
        self.write(move |tx| {
            let (change, entry) = (change.clone(), entry.clone());
            Box::pin(async move {
                let Some(mut state) = lock(tx, task).await? else { return Ok((Changed::NotFound, false)) };
                if state.task.status.is_final() {
                    return Ok((Changed::Over, false));
                }
                let is_changed = change(&mut state);
                if is_changed {
                    state.save(tx).await?;
                    if let Some(entry) = entry {
                        audit::append(tx, entry).await?;
                    }
                }
                Ok((Changed::Done, is_changed))
            })
        })
        .await
    }
}

/// Lets a task wait; without `held` for rules.
fn pause(state: &mut State, message: &str, held: Option<Held>, now: Timestamp) -> bool {
    if !state.paused {
        state.new_events.push(events::told(now, code::PAUSED, message, &json!({})));
    }
    let by_rule = held.is_none();
    let held = held.unwrap_or_default();
    state.task.condition = Condition::Paused { message: message.to_owned(), by_rule, held };
    state.paused = true;
    true
}

/// Who speaks for these ends lets a task wait, whoever else does.
fn hold(state: &mut State, ends: Ends, message: &str, now: Timestamp) -> bool {
    let mut held = match &state.task.condition {
        Condition::Paused { held, .. } => held.clone(),
        _ => Held::default(),
    };
    held.set(ends, Some(message));
    pause(state, message, Some(held), now)
}

/// Who speaks for these ends holds a task no longer.
fn release(state: &mut State, ends: Ends, now: Timestamp) -> bool {
    if let Condition::Paused { message, held, .. } = &mut state.task.condition {
        let before = held.clone();
        held.set(ends, None);
        if let Some(other) = held.message() {
            *message = other.to_owned();
            return *held != before;
        }
    }
    resume(state, now)
}

fn resume(state: &mut State, now: Timestamp) -> bool {
    if !state.paused {
        return false;
    }
    state.paused = false;
    state.task.not_before = None;
    state.task.condition = if state.holder.is_some() { Condition::Running } else { Condition::Queued };
    state.new_events.push(events::told(now, code::UNPAUSED, "goes on", &json!({})));
    true
}
