//! Keeps house: forgets what is old, counts anew what was counted as it happened.

use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::{Counters, Status};

use super::database::{Transaction, Value, values};
use super::history::count_items;
use super::tasks::{json, uuid};
use super::time::{from_micros, micros};
use super::{Store, StoreError};
use crate::task::Condition;

/// Rows that are deleted in one transaction: nobody waits for it longer than a moment.
const AT_ONCE: i64 = 5000;

/// A task whose counters are not what its items add up to: a bug of ours, or damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miscount {
    /// Which.
    pub task: Uuid,
    /// What stands in its row.
    pub stored: Counters,
    /// What its items add up to.
    pub counted: Counters,
}

/// How many tasks there are and how they fare.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Census {
    /// Unfinished tasks that an orchestrator has.
    pub running: u64,
    /// Those that wait for their turn, or to be tried again.
    pub waiting: u64,
    /// Those that wait to be tried again after something went wrong; they are among the waiting or running, too.
    pub troubled: u64,
    /// Those that were paused.
    pub paused: u64,
    /// Those that wait for a credential.
    pub inactive: u64,
    /// When the oldest of the waiting ones was submitted.
    pub oldest_waiting: Option<Timestamp>,
    /// Bytes per second of all that run.
    pub rate: f64,
    /// Tasks that succeeded since the time asked for.
    pub succeeded: u64,
    /// Tasks that failed since then.
    pub failed: u64,
    /// Of these, those that were cancelled.
    pub cancelled: u64,
}

impl Census {
    /// How long the oldest of the waiting ones has waited, seconds; 0: none waits.
    pub fn oldest_waiting_seconds(&self, now: Timestamp) -> i64 {
        self.oldest_waiting.map_or(0, |oldest| (now.secs - oldest.secs).max(0))
    }

    /// Tasks that failed, and not because somebody cancelled them.
    pub fn failed_uncancelled(&self) -> u64 {
        self.failed.saturating_sub(self.cancelled)
    }
}

impl Store {
    /// Forgets a task that was over before `before`, with all that belongs to it; `false`: there is none.
    ///
    /// # Errors
    /// Those of the database; what was deleted by then stays so.
    pub async fn forget_task(&self, before: Timestamp) -> Result<bool, StoreError> {
        let sql = "SELECT number FROM tasks WHERE completed < $1 ORDER BY completed LIMIT 1";
        let Some(mut row) = self.read().await?.query(sql, values![micros(before)]).await?.pop() else {
            return Ok(false);
        };
        let task = row.int()?;
        let items = "DELETE FROM items WHERE task = $1 AND key IN (SELECT key FROM items WHERE task = $1 LIMIT $2)";
        while self.delete(items, values![task, AT_ONCE]).await? > 0 {}
        // The rest is some thousand rows at the most, and goes with the task's.
        self.delete("DELETE FROM tasks WHERE number = $1", values![task]).await?;
        Ok(true)
    }

    /// Forgets entries of the audit log from before `before`; how many.
    ///
    /// # Errors
    /// Those of the database; what was deleted by then stays so.
    pub async fn forget_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        let sql = "DELETE FROM audit WHERE number IN (SELECT number FROM audit WHERE time < $1 LIMIT $2)";
        let mut count = 0;
        loop {
            match self.delete(sql, values![micros(before), AT_ONCE]).await? {
                0 => return Ok(count),
                deleted => count += deleted,
            }
        }
    }

    async fn delete(&self, sql: &'static str, values: Vec<Value>) -> Result<u64, StoreError> {
        self.write(move |tx| {
            let values = values.clone();
            Box::pin(async move { tx.execute(sql, values).await })
        })
        .await
    }

    /// Tasks that are not over, or were not at `since`: those that follow number `after` (0 begins), each with its number.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn tasks_since(&self, since: Timestamp, after: i64, limit: u32) -> Result<Vec<(i64, Uuid)>, StoreError> {
        let sql = "SELECT number, id FROM tasks WHERE number > $1 AND (completed IS NULL OR completed >= $2) \
                   ORDER BY number LIMIT $3";
        let rows = self.read().await?.query(sql, values![after, micros(since), limit]).await?;
        rows.into_iter().map(|mut row| Ok((row.int()?, uuid(&row.text()?)?))).collect()
    }

    /// Whether a task's counters are what its items add up to, at one moment; `None`: they are, or there is no such task.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn miscount(&self, task: Uuid) -> Result<Option<Miscount>, StoreError> {
        let mut tx = self.read().await?;
        let found = tx.query("SELECT counters FROM tasks WHERE id = $1", values![task]).await?.pop();
        let Some(mut row) = found else { return Ok(None) };
        let stored: Counters = json(&row.text()?)?;
        let counted = count_items(tx.as_mut(), task).await?;
        Ok((stored != counted).then_some(Miscount { task, stored, counted }))
    }

    /// How many tasks there are; those that are over are counted from `since`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn census(&self, since: Timestamp) -> Result<Census, StoreError> {
        let mut tx = self.read().await?;
        let mut census = Census::default();
        unfinished(tx.as_mut(), &mut census).await?;
        let sql = "SELECT gauge FROM tasks WHERE holder IS NOT NULL";
        for mut row in tx.query(sql, values![]).await? {
            let Some(gauge) = row.maybe_text()? else { continue };
            census.rate += json::<whimbrel_engine::dispatch::Gauge>(&gauge)?.rate;
        }
        let sql = "SELECT status, CASE WHEN cancelled IS NULL THEN 0 ELSE 1 END, COUNT(*) FROM tasks WHERE completed >= $1 \
                   GROUP BY status, CASE WHEN cancelled IS NULL THEN 0 ELSE 1 END";
        for mut row in tx.query(sql, values![micros(since)]).await? {
            let (status, cancelled, count) = (row.text()?, row.int()? != 0, row.count()?);
            match Status::parse(&status) {
                Some(Status::Succeeded) => census.succeeded += count,
                _ => census.failed += count,
            }
            census.cancelled += if cancelled { count } else { 0 };
        }
        Ok(census)
    }

    /// How many records of a kind there are.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn count_records(&self, kind: &str) -> Result<u64, StoreError> {
        let sql = "SELECT COUNT(*) FROM records WHERE kind = $1";
        let mut rows = self.read().await?.query(sql, values![kind]).await?;
        rows.first_mut().map_or(Ok(0), |row| row.count())
    }
}

async fn unfinished(tx: &mut dyn Transaction, census: &mut Census) -> Result<(), StoreError> {
    let sql = "SELECT status, paused, CASE WHEN holder IS NULL THEN 0 ELSE 1 END, situation, COUNT(*), MIN(requested) \
               FROM tasks WHERE status IN ('ACTIVE', 'INACTIVE') \
               GROUP BY status, paused, CASE WHEN holder IS NULL THEN 0 ELSE 1 END, situation";
    for mut row in tx.query(sql, values![]).await? {
        let (status, paused, held) = (row.text()?, row.int()? != 0, row.int()? != 0);
        let situation: Condition = json(&row.text()?)?;
        let (count, oldest) = (row.count()?, from_micros(row.int()?));
        if matches!(situation, Condition::Troubled { .. }) {
            census.troubled += count;
        }
        match (Status::parse(&status), paused, held) {
            (Some(Status::Inactive), _, _) => census.inactive += count,
            (_, true, _) => census.paused += count,
            (_, false, true) => census.running += count,
            (_, false, false) => {
                census.waiting += count;
                census.oldest_waiting = Some(census.oldest_waiting.map_or(oldest, |known| known.min(oldest)));
            }
        }
    }
    Ok(())
}
