//! The row of a task: read, changed and written back in one place.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::{ItemState, Status};

use super::audit::{self, AuditEntry};
use super::database::{Row, Transaction, values};
use super::time::{from_micros, micros};
use super::{Store, StoreError, history};
use crate::notices::records::{Event, Notice};
use crate::task::{Condition, Fatal, Task, TaskEvent};

/// What became of a wish about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// It is so now, or was before.
    Done,
    /// There is no such task, or it is another's.
    NotFound,
    /// The task is over, and never changes again.
    Over,
}

/// A task with what only the store knows of it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) number: i64,
    pub(super) task: Task,
    pub(super) paused: bool,
    /// Where it stood when it was read.
    was: Status,
    /// What became of the items that were not done when it was over: their rows are not touched.
    pub(super) left_as: Option<ItemState>,
    /// The first item's failure.
    pub(super) failure: Option<Fatal>,
    /// Ends with something temporary in a row, without an item done.
    pub(super) troubles: u32,
    pub(super) holder: Option<Uuid>,
    pub(super) lease_until: Option<Timestamp>,
    /// The newest report that was taken of this epoch.
    pub(super) sequence: u64,
    /// Items that came to a final state.
    pub(super) marks: u64,
    /// Events that are stored, or were.
    pub(super) events: u64,
    /// Events to be stored.
    pub(super) new_events: Vec<TaskEvent>,
}

/// The columns that [`State::read`] expects.
pub(super) const COLUMNS: &str = "number, id, wanted, requested, started, completed, status, paused, situation, counters, \
     left_as, faults, failure, fatal, cancelled, gauge, not_before, troubles, holder, lease_until, epoch, sequence, marks, \
     events, basis";

impl State {
    pub(super) fn read(mut row: Row) -> Result<Self, StoreError> {
        let number = row.int()?;
        let mut task = Task {
            id: uuid(&row.text()?)?,
            wanted: json(&row.text()?)?,
            requested: from_micros(row.int()?),
            started: row.maybe_int()?.map(from_micros),
            completed: row.maybe_int()?.map(from_micros),
            status: status(&row.text()?)?,
            condition: Condition::Queued,
            counters: Default::default(),
            faults: 0,
            gauge: None,
            fatal: None,
            cancelled: None,
            not_before: None,
            epoch: 0,
            basis: None,
        };
        let (paused, was) = (row.int()? != 0, task.status);
        task.condition = json(&row.text()?)?;
        task.counters = json(&row.text()?)?;
        let left_as = row.maybe_int()?.map(state).transpose()?;
        task.faults = row.count()?;
        let failure = maybe_json(row.maybe_text()?)?;
        task.fatal = maybe_json(row.maybe_text()?)?;
        task.cancelled = maybe_json(row.maybe_text()?)?;
        task.gauge = maybe_json(row.maybe_text()?)?;
        task.not_before = Some(row.int()?).filter(|micros| *micros > 0).map(from_micros);
        let troubles = u32::try_from(row.int()?).unwrap_or(u32::MAX);
        let holder = row.maybe_text()?.as_deref().map(uuid).transpose()?;
        let lease_until = row.maybe_int()?.map(from_micros);
        task.epoch = row.count()?;
        let (sequence, marks, events) = (row.count()?, row.count()?, row.count()?);
        task.basis = row.maybe_text()?;
        Ok(Self {
            number,
            task,
            paused,
            was,
            left_as,
            failure,
            troubles,
            holder,
            lease_until,
            sequence,
            marks,
            events,
            new_events: Vec::new(),
        })
    }

    /// Writes what may have changed, with the new events.
    pub(super) async fn save(mut self, tx: &mut dyn Transaction) -> Result<Task, StoreError> {
        let events = std::mem::take(&mut self.new_events);
        let news = events.last().map(|event| event.time);
        history::append(tx, &mut self, events).await?;
        self.note_for_owner(tx, news).await?;
        let sql = "UPDATE tasks SET started = $1, completed = $2, status = $3, paused = $4, situation = $5, \
                   counters = $6, left_as = $7, faults = $8, failure = $9, fatal = $10, cancelled = $11, gauge = $12, \
                   not_before = $13, troubles = $14, holder = $15, lease_until = $16, epoch = $17, sequence = $18, \
                   marks = $19, events = $20 WHERE number = $21";
        let task = self.task;
        let values = values![
            task.started.map(micros),
            task.completed.map(micros),
            task.status.name(),
            self.paused,
            text(&task.condition)?,
            text(&task.counters)?,
            self.left_as.map(ItemState::number),
            number(task.faults)?,
            maybe_text(self.failure.as_ref())?,
            maybe_text(task.fatal.as_ref())?,
            maybe_text(task.cancelled.as_ref())?,
            maybe_text(task.gauge.as_ref())?,
            task.not_before.map_or(0, micros),
            self.troubles,
            self.holder,
            self.lease_until.map(micros),
            number(task.epoch)?,
            number(self.sequence)?,
            number(self.marks)?,
            number(self.events)?,
            self.number,
        ];
        tx.execute(sql, values).await?;
        Ok(task)
    }

    /// Notes for its owner what became of it, if that is news that they want.
    async fn note_for_owner(&self, tx: &mut dyn Transaction, news: Option<Timestamp>) -> Result<(), StoreError> {
        let (task, wanted) = (&self.task, &self.task.wanted);
        let event = Event::of(task.status).filter(|event| task.status != self.was && event.is_wanted(wanted.notify));
        // Whoever ends their own task knows.
        if event.is_none() || task.cancelled.as_ref().is_some_and(|cancelled| cancelled.by == wanted.owner) {
            return Ok(());
        }
        let time = task.completed.or(news).unwrap_or(task.requested);
        let (id, status) = (super::seal::random_uuid()?, task.status);
        let notice = Notice { id, task: task.id, owner: wanted.owner, status, time, due: time, tries: 0, left: None };
        super::record::put(tx, &notice).await
    }

    /// Nobody works on it any more.
    pub(super) fn release(&mut self) {
        self.holder = None;
        self.lease_until = None;
        self.task.gauge = None;
    }

    /// How it goes, unless it is paused.
    pub(super) fn show(&mut self, condition: Condition) {
        if !self.paused {
            self.task.condition = condition;
        }
    }

    /// It is over, now and for ever: whatever is not done counts as `left_as`. Every end of a task goes through here.
    pub(super) fn finish(&mut self, left_as: ItemState, fatal: Option<Fatal>, now: Timestamp) {
        self.release();
        self.task.counters.close(left_as);
        self.left_as = Some(left_as);
        self.task.status = if fatal.is_some() { Status::Failed } else { Status::Succeeded };
        self.task.fatal = fatal;
        self.task.completed = Some(now);
        self.task.condition = Condition::Over;
        self.task.not_before = None;
        self.paused = false;
    }
}

/// The task, for nobody else to change until the end of the transaction.
pub(super) async fn lock(tx: &mut dyn Transaction, id: Uuid) -> Result<Option<State>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM tasks WHERE id = $1{}", tx.dialect().lock());
    tx.query(&sql, values![id]).await?.pop().map(State::read).transpose()
}

impl Store {
    /// The task of this identity.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn task(&self, id: Uuid) -> Result<Option<Task>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM tasks WHERE id = $1");
        let row = self.read().await?.query(&sql, values![id]).await?.pop();
        Ok(row.map(State::read).transpose()?.map(|state| state.task))
    }

    /// Gives an unfinished task of this owner (`None`: of anybody) another name or deadline; `entry` says who did it.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn update_task(
        &self,
        id: Uuid,
        owner: Option<Uuid>,
        label: Option<String>,
        deadline: Option<Timestamp>,
        entry: Option<AuditEntry>,
    ) -> Result<Changed, StoreError> {
        self.write(move |tx| {
            let (label, entry) = (label.clone(), entry.clone());
            Box::pin(async move {
                let Some(state) = lock(tx, id).await? else { return Ok(Changed::NotFound) };
                let mut wanted = state.task.wanted;
                if owner.is_some_and(|owner| owner != wanted.owner) {
                    return Ok(Changed::NotFound);
                }
                if state.task.status.is_final() {
                    return Ok(Changed::Over);
                }
                wanted.label = label.or(wanted.label);
                wanted.deadline = deadline.unwrap_or(wanted.deadline);
                let sql = "UPDATE tasks SET wanted = $1, label = $2, deadline = $3 WHERE number = $4";
                let folded = wanted.label.as_deref().map(str::to_lowercase);
                tx.execute(sql, values![text(&wanted)?, folded, micros(wanted.deadline), state.number]).await?;
                if let Some(entry) = entry {
                    audit::append(tx, entry).await?;
                }
                Ok(Changed::Done)
            })
        })
        .await
    }
}

/// As text of JSON. NUL characters in it are written as escapes, which every database takes.
pub(super) fn text(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Invalid(error.to_string()))
}

fn maybe_text<T: Serialize>(value: Option<&T>) -> Result<Option<String>, StoreError> {
    value.map(text).transpose()
}

pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    Ok(serde_json::from_str(text)?)
}

fn maybe_json<T: DeserializeOwned>(text: Option<String>) -> Result<Option<T>, StoreError> {
    text.as_deref().map(json).transpose()
}

pub(super) fn uuid(text: &str) -> Result<Uuid, StoreError> {
    text.parse().map_err(|_| StoreError::Corrupt(format!("{:?} is no UUID", Json::from(text))))
}

fn status(name: &str) -> Result<Status, StoreError> {
    Status::parse(name).ok_or_else(|| StoreError::Corrupt(format!("{name:?} is no status of tasks")))
}

pub(super) fn state(number: i64) -> Result<ItemState, StoreError> {
    ItemState::from_number(number).ok_or_else(|| StoreError::Corrupt(format!("{number} is no state of items")))
}

/// A count as databases keep it.
pub(super) fn number(count: u64) -> Result<i64, StoreError> {
    i64::try_from(count).map_err(|_| StoreError::Invalid(format!("{count} is too large a number")))
}
