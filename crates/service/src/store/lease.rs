//! Who works on what: leases on tasks.

use uuid::Uuid;
use whimbrel_engine::dispatch::{LEASE_SECONDS, Lease};
use whimbrel_engine::listing::Timestamp;

use super::database::{Dialect, Transaction, values};
use super::tasks::{COLUMNS, State, number, uuid};
use super::time::{later, micros};
use super::{Store, StoreError};
use crate::events;
use crate::task::{Condition, Task};

/// A task that may be leased: `$1` is the time.
const RUNNABLE: &str =
    "status = 'ACTIVE' AND paused = 0 AND not_before <= $1 AND (holder IS NULL OR lease_until <= $1)";

/// Number of the lock under which PostgreSQL's replicas choose: any constant of our own.
const LOCK: i64 = 0x7768_696d_6c65_6173;

impl Store {
    /// Gives an orchestrator at most `most` tasks that can go on: first those of owners of whom the fewest run, of one owner the
    /// oldest; of each owner at most `slots` run at a time.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn lease(
        &self,
        orchestrator: Uuid,
        now: Timestamp,
        most: u32,
        slots: u32,
    ) -> Result<Vec<(Task, Lease)>, StoreError> {
        // Polls come often and find nothing: they do not wait for the writer.
        if most == 0 || candidates(self.read().await?.as_mut(), now, most, slots).await?.is_empty() {
            return Ok(Vec::new());
        }
        self.write(move |tx| {
            Box::pin(async move {
                // One replica chooses at a time: what it counts does not change under it.
                exclusive(tx).await?;
                let mut leased = Vec::new();
                for task in candidates(tx, now, most, slots).await? {
                    leased.extend(give(tx, task, orchestrator, now).await?);
                }
                Ok(leased)
            })
        })
        .await
    }

    /// Lets leases hold on, and tells those on which work must end: they are lost, or the task is over or paused. A paused
    /// task is the orchestrator's until it reports its end.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn renew(&self, orchestrator: Uuid, leases: &[Lease], now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        // Always in the same order, so that two replicas never wait for each other.
        let mut leases = leases.to_vec();
        leases.sort_unstable();
        let until = until(now);
        self.write(move |tx| {
            let leases = leases.clone();
            Box::pin(async move {
                let mut ending = Vec::new();
                for lease in leases {
                    let sql = "UPDATE tasks SET lease_until = $1 WHERE id = $2 AND epoch = $3 AND holder = $4 RETURNING paused";
                    let epoch = i64::try_from(lease.epoch).unwrap_or(i64::MAX);
                    let mut rows = tx.query(sql, values![micros(until), lease.task, epoch, orchestrator]).await?;
                    let goes_on = rows.first_mut().map(|row| row.int()).transpose()? == Some(0);
                    ending.extend((!goes_on).then_some(lease));
                }
                Ok(ending)
            })
        })
        .await
    }

    /// Of these leases, those on which work must end, as [`Store::renew`] tells them; nothing is written.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn ending(&self, orchestrator: Uuid, leases: &[Lease]) -> Result<Vec<Lease>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let sql = "SELECT id, epoch FROM tasks WHERE holder = $1 AND paused = 0";
        let mut going_on = std::collections::HashSet::new();
        for mut row in self.read().await?.query(sql, values![orchestrator]).await? {
            going_on.insert((uuid(&row.text()?)?, row.count()?));
        }
        Ok(leases.iter().copied().filter(|lease| !going_on.contains(&(lease.task, lease.epoch))).collect())
    }

    /// Ends all leases of an orchestrator that died, as [`Store::release`] does; how many they were.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn release_all(&self, orchestrator: Uuid) -> Result<usize, StoreError> {
        // Always in the same order, so that two replicas never wait for each other.
        let sql = "SELECT id, epoch FROM tasks WHERE holder = $1 ORDER BY id";
        let rows = self.read().await?.query(sql, values![orchestrator]).await?;
        let held = rows.into_iter().map(|mut row| Ok(Lease { task: uuid(&row.text()?)?, epoch: row.count()? }));
        let held = held.collect::<Result<Vec<_>, StoreError>>()?;
        let count = held.len();
        for lease in held {
            self.release(lease).await?;
        }
        Ok(count)
    }

    /// Notes what a lease rests on; nothing happens when it is lost already.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn rest_on(&self, lease: Lease, basis: &str) -> Result<(), StoreError> {
        let (basis, epoch) = (basis.to_owned(), number(lease.epoch)?);
        self.write(move |tx| {
            let basis = basis.clone();
            Box::pin(async move {
                let sql = "UPDATE tasks SET basis = $1 WHERE id = $2 AND epoch = $3";
                tx.execute(sql, values![basis, lease.task, epoch]).await.map(drop)
            })
        })
        .await
    }

    /// The tasks of these leases of an orchestrator, those of them that are not to end.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn held(&self, orchestrator: Uuid, leases: &[Lease]) -> Result<Vec<Task>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!("SELECT {COLUMNS} FROM tasks WHERE holder = $1 AND paused = 0");
        let rows = self.read().await?.query(&sql, values![orchestrator]).await?;
        let tasks = rows.into_iter().map(|row| Ok(State::read(row)?.task)).collect::<Result<Vec<_>, StoreError>>()?;
        let named = |task: &Task| leases.contains(&Lease { task: task.id, epoch: task.epoch });
        Ok(tasks.into_iter().filter(named).collect())
    }

    /// All tasks that some orchestrator works on, but for those that are to end.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn running(&self) -> Result<Vec<Task>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM tasks WHERE holder IS NOT NULL AND paused = 0");
        let rows = self.read().await?.query(&sql, values![]).await?;
        rows.into_iter().map(|row| Ok(State::read(row)?.task)).collect()
    }

    /// Ends a lease without a report: the task is anybody's. Nothing happens when it is lost already.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let state = super::tasks::lock(tx, lease.task).await?;
                let Some(mut state) = state.filter(|state| state.task.epoch == lease.epoch) else { return Ok(()) };
                state.release();
                state.save(tx).await.map(drop)
            })
        })
        .await
    }
}

/// Waits until nobody else gives out leases.
async fn exclusive(tx: &mut dyn Transaction) -> Result<(), StoreError> {
    match tx.dialect() {
        Dialect::Sqlite => Ok(()),
        Dialect::Postgres => tx.execute("SELECT pg_advisory_xact_lock($1)", values![LOCK]).await.map(drop),
    }
}

/// Tasks that may be leased now, best first. A task's place is the number of tasks that its owner would run with it.
async fn candidates(tx: &mut dyn Transaction, now: Timestamp, most: u32, slots: u32) -> Result<Vec<Uuid>, StoreError> {
    let sql = format!(
        "WITH running AS (SELECT owner, COUNT(*) AS running FROM tasks \
         WHERE status = 'ACTIVE' AND holder IS NOT NULL AND lease_until > $1 GROUP BY owner), \
         waiting AS (SELECT id, owner, requested, ROW_NUMBER() OVER (PARTITION BY owner ORDER BY requested, id) AS turn \
         FROM tasks WHERE {RUNNABLE}) \
         SELECT w.id FROM waiting w LEFT JOIN running r ON r.owner = w.owner \
         WHERE w.turn + COALESCE(r.running, 0) <= $2 \
         ORDER BY w.turn + COALESCE(r.running, 0), w.requested, w.id LIMIT $3"
    );
    let rows = tx.query(&sql, values![micros(now), slots, most]).await?;
    rows.into_iter().map(|mut row| uuid(&row.text()?)).collect()
}

/// Leases a task, if nobody was faster.
async fn give(
    tx: &mut dyn Transaction,
    task: Uuid,
    orchestrator: Uuid,
    now: Timestamp,
) -> Result<Option<(Task, Lease)>, StoreError> {
    // A task that somebody else has locked is changing: the next poll will see.
    let sql = format!("SELECT {COLUMNS} FROM tasks WHERE {RUNNABLE} AND id = $2{}", tx.dialect().lock_free());
    let Some(row) = tx.query(&sql, values![micros(now), task]).await?.pop() else { return Ok(None) };
    let mut state = State::read(row)?;
    number(state.task.epoch + 1)?;
    state.release();
    state.task.epoch += 1;
    state.sequence = 0;
    state.holder = Some(orchestrator);
    state.lease_until = Some(until(now));
    if state.task.started.is_none() && state.task.wanted.is_not_durable() {
        state.new_events.push(events::not_durable(now));
    }
    state.task.started.get_or_insert(now);
    state.task.not_before = None;
    if matches!(state.task.condition, Condition::Queued) {
        state.task.condition = Condition::Running;
    }
    let lease = Lease { task, epoch: state.task.epoch };
    Ok(Some((state.save(tx).await?, lease)))
}

fn until(now: Timestamp) -> Timestamp {
    later(now, LEASE_SECONDS as f64)
}
