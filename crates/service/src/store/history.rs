//! What happened to a task: events, and items that came to their end.

use uuid::Uuid;
use whimbrel_engine::Fault;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::{Counters, ItemKind, ItemRecord, ItemState};

use super::database::{Row, Transaction, values};
use super::tasks::{State, json, number, state};
use super::time::{from_micros, micros};
use super::{Store, StoreError};
use crate::task::{Copied, LeftOut, TaskEvent};

/// Events kept from a task's beginning, which tell what went wrong first.
pub const FIRST_EVENTS: u64 = 100;
/// Newest events kept. What is in between is counted, and deleted.
pub const NEWEST_EVENTS: u64 = 900;

/// An item that came to its end.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Its place; the mark with which to ask for what follows.
    pub mark: u64,
    /// When.
    pub time: Timestamp,
    /// What it is.
    pub kind: ItemKind,
    /// Only the destination had it, and it was to be deleted there.
    pub extra: bool,
    /// What became of it.
    pub state: ItemState,
    /// Path at the source's server.
    pub source: Vec<u8>,
    /// Path at the destination's server.
    pub destination: Vec<u8>,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Algorithm and digest of the whole file, where one was made.
    pub checksum: Option<(String, String)>,
    /// Why it was not done.
    pub fault: Option<Fault>,
}

/// A page of keys of items in a final state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedKeys {
    /// All of them.
    pub keys: Vec<Uuid>,
    /// Those of items that failed, or were left out because they could not be read.
    pub failed: Vec<Uuid>,
    /// The mark with which to ask for more.
    pub next: u64,
}

/// Numbers events on and stores those that are kept; what is too old by now goes.
pub(super) async fn append(
    tx: &mut dyn Transaction,
    state: &mut State,
    events: Vec<TaskEvent>,
) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    let before = state.events;
    state.events += events.len() as u64;
    state.task.faults += events.iter().filter(|event| event.is_error).count() as u64;
    let newest = state.events.saturating_sub(NEWEST_EVENTS);
    let sql = "INSERT INTO events (task, number, time, code, description, details, is_error) \
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    for (at, event) in (before + 1..).zip(events).filter(|(at, _)| *at <= FIRST_EVENTS || *at > newest) {
        let (code, description, details) = (clean(event.code), clean(event.description), clean(event.details));
        let time = micros(event.time);
        tx.execute(sql, values![state.number, number(at)?, time, code, description, details, event.is_error]).await?;
    }
    if newest > FIRST_EVENTS {
        let sql = "DELETE FROM events WHERE task = $1 AND number > $2 AND number <= $3";
        tx.execute(sql, values![state.number, number(FIRST_EVENTS)?, number(newest)?]).await?;
    }
    Ok(())
}

/// Words of others, as databases take them.
fn clean(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

impl Store {
    /// Events of a task, newest first, from `offset`, and how many there are in all: those that are faults, those that are not, or
    /// all. Of a task with very many, the first [`FIRST_EVENTS`] and the newest [`NEWEST_EVENTS`] are there.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn events(
        &self,
        task: Uuid,
        is_error: Option<bool>,
        offset: u64,
        limit: u32,
    ) -> Result<(Vec<TaskEvent>, u64), StoreError> {
        let mut tx = self.read().await?;
        let filter =
            "FROM events WHERE task = (SELECT number FROM tasks WHERE id = $1) AND ($2 IS NULL OR is_error = $2)";
        let mut counted = tx.query(&format!("SELECT COUNT(*) {filter}"), values![task, is_error]).await?;
        let total = counted.first_mut().map_or(Ok(0), Row::count)?;
        let sql = format!(
            "SELECT time, code, description, details, is_error {filter} ORDER BY number DESC LIMIT $3 OFFSET $4"
        );
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let rows = tx.query(&sql, values![task, is_error, limit, offset]).await?;
        Ok((rows.into_iter().map(event).collect::<Result<_, _>>()?, total))
    }

    /// Files that were copied, in the order in which they were done: those that follow the mark `after` (0 begins).
    ///
    /// # Errors
    /// Those of the database.
    pub async fn copied(&self, task: Uuid, after: u64, limit: u32) -> Result<Vec<Copied>, StoreError> {
        let sql = "SELECT mark, source, destination, bytes, sum FROM items \
                   WHERE task = (SELECT number FROM tasks WHERE id = $1) AND mark > $2 AND state = $3 AND kind = $4 \
                   AND extra = 0 ORDER BY mark LIMIT $5";
        let (state, kind) = (ItemState::Succeeded.number(), ItemKind::File.number());
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let rows = self.read().await?.query(sql, values![task, after, state, kind, limit]).await?;
        let copied = |mut row: Row| {
            Ok(Copied {
                mark: row.count()?,
                source: row.blob()?,
                destination: row.blob()?,
                size: row.count()?,
                checksum: row.maybe_text()?.as_deref().map(json).transpose()?,
            })
        };
        rows.into_iter().map(copied).collect()
    }

    /// Items that could not be read and were left out, in the order in which they were: those that follow the mark `after`
    /// (0 begins).
    ///
    /// # Errors
    /// Those of the database.
    pub async fn left_out(&self, task: Uuid, after: u64, limit: u32) -> Result<Vec<LeftOut>, StoreError> {
        let sql = "SELECT mark, kind, source, destination, time, fault FROM items \
                   WHERE task = (SELECT number FROM tasks WHERE id = $1) AND mark > $2 AND state = $3 ORDER BY mark LIMIT $4";
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let values = values![task, after, ItemState::SkippedError.number(), limit];
        let left_out = |mut row: Row| {
            Ok(LeftOut {
                mark: row.count()?,
                kind: kind(row.int()?)?,
                source: row.blob()?,
                destination: row.blob()?,
                time: from_micros(row.int()?),
                fault: json(&row.text()?)?,
            })
        };
        self.read().await?.query(sql, values).await?.into_iter().map(left_out).collect()
    }

    /// Items of all kinds that came to their end, in the order in which they did: those that follow the mark `after` (0 begins).
    ///
    /// # Errors
    /// Those of the database.
    pub async fn log(&self, task: Uuid, after: u64, limit: u32) -> Result<Vec<LogEntry>, StoreError> {
        let sql = "SELECT mark, time, kind, extra, state, source, destination, bytes, sum, fault FROM items \
                   WHERE task = (SELECT number FROM tasks WHERE id = $1) AND mark > $2 ORDER BY mark LIMIT $3";
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let entry = |mut row: Row| {
            Ok(LogEntry {
                mark: row.count()?,
                time: from_micros(row.int()?),
                kind: kind(row.int()?)?,
                extra: row.int()? != 0,
                state: super::tasks::state(row.int()?)?,
                source: row.blob()?,
                destination: row.blob()?,
                bytes: row.count()?,
                checksum: row.maybe_text()?.as_deref().map(json).transpose()?,
                fault: row.maybe_text()?.as_deref().map(json).transpose()?,
            })
        };
        self.read().await?.query(sql, values![task, after, limit]).await?.into_iter().map(entry).collect()
    }

    /// Keys of items in a final state that follow the mark `after` (0 begins).
    ///
    /// # Errors
    /// Those of the database.
    pub async fn finished_keys(&self, task: Uuid, after: u64, limit: u32) -> Result<FinishedKeys, StoreError> {
        let sql = "SELECT mark, key, state FROM items WHERE task = (SELECT number FROM tasks WHERE id = $1) AND mark > $2 \
                   ORDER BY mark LIMIT $3";
        let mut page = FinishedKeys { keys: Vec::new(), failed: Vec::new(), next: after };
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        for mut row in self.read().await?.query(sql, values![task, after, limit]).await? {
            page.next = row.count()?;
            let key = key(row.blob()?)?;
            page.keys.push(key);
            let state = state(row.int()?)?;
            page.failed.extend(matches!(state, ItemState::Failed | ItemState::SkippedError).then_some(key));
        }
        Ok(page)
    }

    /// What a task's items add up to, counted anew from every one of them; the same as the task's counters.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn recount(&self, task: Uuid) -> Result<Counters, StoreError> {
        count_items(self.read().await?.as_mut(), task).await
    }
}

/// What a task's items add up to.
pub(super) async fn count_items(tx: &mut dyn Transaction, task: Uuid) -> Result<Counters, StoreError> {
    let sql = "SELECT t.left_as, i.kind, i.extra, i.state, COUNT(*), CAST(SUM(i.bytes) AS BIGINT), \
               CAST(SUM(i.proven) AS BIGINT) FROM items i JOIN tasks t ON t.number = i.task WHERE t.id = $1 \
               GROUP BY t.left_as, i.kind, i.extra, i.state";
    let mut counters = Counters::default();
    for mut row in tx.query(sql, values![task]).await? {
        let left_as = row.maybe_int()?.map(state).transpose()?;
        let (kind, extra, found) = (kind(row.int()?)?, row.int()? != 0, state(row.int()?)?);
        let state = if found.is_final() { found } else { left_as.unwrap_or(found) };
        let count = row.count()?;
        let mut record = ItemRecord { kind, state, bytes: row.count()?, proven: row.count()?, extra };
        for _ in 0..count {
            counters.step(None, &record);
            (record.bytes, record.proven) = (0, 0);
        }
    }
    Ok(counters)
}

fn event(mut row: Row) -> Result<TaskEvent, StoreError> {
    Ok(TaskEvent {
        time: from_micros(row.int()?),
        code: row.text()?,
        description: row.text()?,
        details: row.text()?,
        is_error: row.int()? != 0,
    })
}

pub(super) fn key(bytes: Vec<u8>) -> Result<Uuid, StoreError> {
    Uuid::from_slice(&bytes).map_err(|_| StoreError::Corrupt("an item's key is no UUID".into()))
}

pub(super) fn kind(number: i64) -> Result<ItemKind, StoreError> {
    ItemKind::from_number(number).ok_or_else(|| StoreError::Corrupt(format!("{number} is no kind of items")))
}
