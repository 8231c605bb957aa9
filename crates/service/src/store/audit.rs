//! Who did what, when; only ever added to.

use serde_json::Value as Json;
use whimbrel_engine::listing::Timestamp;

use super::database::{Row, Transaction, values};
use super::time::{from_micros, micros};
use super::{Store, StoreError};

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
    /// Only older ones than this entry, the last of the page before.
    pub before: Option<(Timestamp, u64)>,
}

impl Store {
    /// Entries, newest first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn audit(&self, query: &AuditQuery, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let sql = "SELECT number, time, actor, action, subject, detail FROM audit WHERE time >= $1 AND time < $2 \
                   AND (time < $3 OR time = $3 AND number < $4) AND ($5 IS NULL OR actor = $5) \
                   AND ($6 IS NULL OR subject = $6) ORDER BY time DESC, number DESC LIMIT $7";
        let since = query.since.map_or(i64::MIN, micros);
        let until = query.until.map_or(i64::MAX, micros);
        let (time, number) = query.before.map_or((i64::MAX, 0), |(time, number)| (micros(time), number.cast_signed()));
        let values = values![since, until, time, number, query.actor.clone(), query.subject.clone(), limit];
        self.read().await?.query(sql, values).await?.into_iter().map(entry).collect()
    }
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
    let sql = "INSERT INTO audit (time, actor, action, subject, detail) VALUES ($1, $2, $3, $4, $5)";
    let values = values![micros(entry.time), entry.actor, entry.action, entry.subject, entry.detail.to_string()];
    tx.execute(sql, values).await.map(drop)
}
