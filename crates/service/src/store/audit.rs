//! Who did what, when; only ever added to.

use serde_json::Value as Json;
use whimbrel_engine::listing::Timestamp;

use super::database::{Dialect, Row, Transaction, values};
use super::query::Filter;
use super::time::{from_micros, micros};
use super::{Store, StoreError};

/// Number of the lock that PostgreSQL's transactions share from their first entry to their end: any constant of our own.
const LOCK: i64 = 0x7768_696d_6175_6469;

/// Microseconds by which an entry may be older or younger than those with numbers near its own: clocks of replicas differ, and what takes
/// long has the time at which it ended.
const SLACK_MICROS: i64 = 3_600_000_000;

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Counts entries; given by the store, whatever it was before.
    pub number: u64,
    /// When; to the microsecond.
    pub time: Timestamp,
    /// Who: an identity, a client, or `service`.
    pub actor: String,
    /// What was done: `collection.create`.
    pub action: String,
    /// What it was done to: an identity.
    pub subject: String,
    /// What else is to be known.
    pub detail: Json,
}

impl AuditEntry {
    /// An entry to be added.
    pub fn new(
        time: Timestamp,
        actor: impl Into<String>,
        action: impl Into<String>,
        subject: impl Into<String>,
    ) -> Self {
        Self {
            number: 0,
            time,
            actor: actor.into(),
            action: action.into(),
            subject: subject.into(),
            detail: Json::Null,
        }
    }

    /// With what else is to be known.
    pub fn detail(mut self, detail: Json) -> Self {
        self.detail = detail;
        self
    }
}

/// Which entries are wanted; the default is all.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Not before this time.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// Of this actor.
    pub actor: Option<String>,
    /// About this subject.
    pub subject: Option<String>,
    /// Of this action; one that ends with a point stands for all that begin with it.
    pub action: Option<String>,
    /// Only older ones than this entry, the last of the page before.
    pub before: Option<(Timestamp, u64)>,
}

impl Store {
    /// Entries in the order of their numbers, those after number `after` (0 begins) and up to `until`, which [`Store::audit_end`] told.
    /// Where a page ends another one goes on, and nothing is missed or told twice.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn audit_after(
        &self,
        query: &AuditQuery,
        after: u64,
        until: u64,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let mut tx = self.read().await?;
        let (mut first, mut last) = (number(after), number(until));
        // Times are looked up by their index; the numbers around them are all that is read of the log.
        if let Some(since) = query.since {
            let sql = "SELECT number FROM audit WHERE time < $1 ORDER BY time DESC, number DESC LIMIT 1";
            let found = tx.query(sql, values![micros(since).saturating_sub(SLACK_MICROS)]).await?.pop();
            first = first.max(found.map(|mut row| row.int()).transpose()?.unwrap_or(0));
        }
        if let Some(until) = query.until {
            let sql = "SELECT number FROM audit WHERE time >= $1 ORDER BY time, number LIMIT 1";
            let found = tx.query(sql, values![micros(until).saturating_add(SLACK_MICROS)]).await?.pop();
            last = last.min(found.map(|mut row| row.int()).transpose()?.unwrap_or(i64::MAX));
        }
        let mut filter = query.filter();
        filter.bound("number >", Some(first));
        filter.bound("number <=", Some(last));
        entries(&mut *tx, filter, "number", limit).await
    }

    /// The number of the newest entry before which no other one can come any more; 0: there is none.
    ///
    /// In PostgreSQL a transaction may end after another one whose entries have higher numbers: those that are under way are waited for.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn audit_end(&self) -> Result<u64, StoreError> {
        let mut tx = self.read().await?;
        if tx.dialect() == Dialect::Sqlite {
            return newest(&mut *tx).await;
        }
        drop(tx);
        self.write(|tx| {
            Box::pin(async move {
                tx.execute("SELECT pg_advisory_xact_lock($1)", values![LOCK]).await?;
                newest(tx).await
            })
        })
        .await
    }

    /// Entries, newest first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn audit(&self, query: &AuditQuery, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let mut filter = query.filter();
        if let Some((time, number)) = query.before {
            let (time, number) = (filter.place(micros(time)), filter.place(self::number(number)));
            filter.sql += &format!(" AND (time < {time} OR time = {time} AND number < {number})");
        }
        entries(&mut *self.read().await?, filter, "time DESC, number DESC", limit).await
    }
}

/// A number as databases keep it.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

async fn newest(tx: &mut dyn Transaction) -> Result<u64, StoreError> {
    let rows = tx.query("SELECT number FROM audit ORDER BY number DESC LIMIT 1", values![]).await?;
    rows.into_iter().next().map_or(Ok(0), |mut row| row.count())
}

impl AuditQuery {
    fn filter(&self) -> Filter {
        let mut filter = Filter::all();
        filter.bound("time >=", self.since.map(micros));
        filter.bound("time <", self.until.map(micros));
        filter.bound("actor =", self.actor.clone());
        filter.bound("subject =", self.subject.clone());
        match self.action.as_deref().map(|action| (action, action.strip_suffix('.'))) {
            None => {}
            Some((action, None)) => filter.bound("action =", Some(action)),
            Some((prefix, Some(stem))) => {
                filter.bound("action >=", Some(prefix));
                // A slash is the sign after the point.
                filter.bound("action <", Some(format!("{stem}/")));
            }
        }
        filter
    }
}

async fn entries(
    tx: &mut dyn Transaction,
    mut filter: Filter,
    order: &str,
    limit: u32,
) -> Result<Vec<AuditEntry>, StoreError> {
    let limit = filter.place(limit);
    let sql = format!(
        "SELECT number, time, actor, action, subject, detail FROM audit WHERE {} ORDER BY {order} LIMIT {limit}",
        filter.sql
    );
    tx.query(&sql, filter.values).await?.into_iter().map(entry).collect()
}

fn entry(mut row: Row) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry {
        number: row.count()?,
        time: from_micros(row.int()?),
        actor: row.text()?,
        action: row.text()?,
        subject: row.text()?,
        detail: serde_json::from_str(&row.text()?)?,
    })
}

pub(super) async fn append(tx: &mut dyn Transaction, entry: AuditEntry) -> Result<(), StoreError> {
    if tx.dialect() == Dialect::Postgres {
        // Shared: entries wait for no others, only who asks for the end of the log waits for them. Nothing is locked after it.
        tx.execute("SELECT pg_advisory_xact_lock_shared($1)", values![LOCK]).await?;
    }
    let sql = "INSERT INTO audit (time, actor, action, subject, detail) VALUES ($1, $2, $3, $4, $5)";
    let values = values![micros(entry.time), entry.actor, entry.action, entry.subject, entry.detail.to_string()];
    tx.execute(sql, values).await.map(drop)
}
