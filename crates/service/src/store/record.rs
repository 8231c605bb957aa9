//! Records: small things that are seldom changed, each a JSON document with a version.
//!
//! A change names the version that it was decided by, and fails when it is not the newest.

use serde::Serialize;
use serde::de::DeserializeOwned;
use whimbrel_engine::listing::Timestamp;

use super::audit::AuditEntry;
use super::database::{Dialect, Pending, Row, Transaction, Value, values};
use super::{Store, StoreError, audit};

/// Something that is kept as a record.
pub trait Record: Serialize + DeserializeOwned + Send + Sync {
    /// What it is; never changes, for it stands in the database.
    const KIND: &'static str;

    /// What tells it from the others of its kind.
    fn id(&self) -> String;

    /// Names and values by which it is found; several records may have the same.
    fn keys(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Names and values by which it is found and which no other record of its kind has.
    fn unique_keys(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// A time as a key of records: later ones are greater as text.
pub fn time_key(time: Timestamp) -> String {
    format!("{:020}", time.secs.max(0))
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<R> {
    /// The record.
    pub record: R,
    /// Which of its versions.
    pub version: u64,
}

/// Changes that happen together or not at all.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Document),
    Update(Document, i64),
    Delete { kind: &'static str, id: String, version: Option<i64> },
    Require { kind: &'static str, id: String, version: i64 },
    Audit(AuditEntry),
}

impl Step {
    /// The record that it changes or looks at, if there may be one.
    fn touches(&self) -> Option<(&str, &str)> {
        match self {
            Self::Insert(document) | Self::Update(document, _) => Some((document.kind, &document.id)),
            Self::Delete { kind, id, .. } | Self::Require { kind, id, .. } => Some((kind, id)),
            Self::Audit(_) => None,
        }
    }
}

#[derive(Debug, Clone)]
struct Document {
    kind: &'static str,
    id: String,
    body: Result<String, String>,
    keys: Vec<(&'static str, String, bool)>,
}

impl Document {
    fn new<R: Record>(record: &R) -> Self {
        let shared = record.keys().into_iter().map(|(name, value)| (name, value, false));
        let only = record.unique_keys().into_iter().map(|(name, value)| (name, value, true));
        let mut keys: Vec<_> = shared.chain(only).collect();
        keys.sort_unstable();
        keys.dedup();
        let body = serde_json::to_string(record).map_err(|error| error.to_string());
        Self { kind: R::KIND, id: record.id(), body, keys }
    }
}

impl Batch {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new record; the batch fails when there is one of its identity, or another with one of its unique keys.
    pub fn insert<R: Record>(mut self, record: &R) -> Self {
        self.steps.push(Step::Insert(Document::new(record)));
        self
    }

    /// Another body for a record; the batch fails when its version is not the newest, or it is gone.
    pub fn update<R: Record>(mut self, changed: &Versioned<R>) -> Self {
        self.steps.push(Step::Update(Document::new(&changed.record), stored(changed.version)));
        self
    }

    /// No such record any more; the batch fails when its version is not the newest, or it is gone.
    pub fn delete<R: Record>(mut self, read: &Versioned<R>) -> Self {
        let version = Some(stored(read.version));
        self.steps.push(Step::Delete { kind: R::KIND, id: read.record.id(), version });
        self
    }

    /// No record of this identity any more, whatever its version, and whether or not there is one.
    pub fn delete_id<R: Record>(mut self, id: impl Into<String>) -> Self {
        self.steps.push(Step::Delete { kind: R::KIND, id: id.into(), version: None });
        self
    }

    /// Nothing changes about a record by which the rest was decided; the batch fails when its version is not the newest.
    pub fn require<R: Record>(mut self, read: &Versioned<R>) -> Self {
        self.steps.push(Step::Require { kind: R::KIND, id: read.record.id(), version: stored(read.version) });
        self
    }

    /// An entry for those who ask later who did what.
    pub fn audit(mut self, entry: AuditEntry) -> Self {
        self.steps.push(Step::Audit(entry));
        self
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Store {
    /// The record of this identity.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn get<R: Record>(&self, id: &str) -> Result<Option<Versioned<R>>, StoreError> {
        let sql = "SELECT version, body FROM records WHERE kind = $1 AND id = $2";
        Ok(self.records(sql, values![R::KIND, id]).await?.pop())
    }

    /// Records of a kind in the order of their identities, those that follow `after`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list<R: Record>(&self, after: Option<&str>, limit: u32) -> Result<Vec<Versioned<R>>, StoreError> {
        let sql = "SELECT version, body FROM records WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3";
        self.records(sql, values![R::KIND, after.unwrap_or(""), limit]).await
    }

    /// Records with this value for a key, in the order of their identities, those that follow `after`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find<R: Record>(
        &self,
        key: &str,
        value: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Versioned<R>>, StoreError> {
        let sql = "SELECT r.version, r.body FROM record_keys k JOIN records r ON r.kind = k.kind AND r.id = k.id \
                   WHERE k.kind = $1 AND k.name = $2 AND k.value = $3 AND k.id > $4 ORDER BY k.id LIMIT $5";
        self.records(sql, values![R::KIND, key, value, after.unwrap_or(""), limit]).await
    }

    /// Records whose value for a key is at most `until`, in the order of values as text.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_until<R: Record>(
        &self,
        key: &str,
        until: &str,
        limit: u32,
    ) -> Result<Vec<Versioned<R>>, StoreError> {
        self.find_between(key, ("", ""), until, limit).await
    }

    /// The same of those that follow a value and an identity.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_between<R: Record>(
        &self,
        key: &str,
        (after, id): (&str, &str),
        until: &str,
        limit: u32,
    ) -> Result<Vec<Versioned<R>>, StoreError> {
        let sql = "SELECT r.version, r.body FROM record_keys k JOIN records r ON r.kind = k.kind AND r.id = k.id \
                   WHERE k.kind = $1 AND k.name = $2 AND (k.value, k.id) > ($3, $4) AND k.value <= $5 \
                   ORDER BY k.value, k.id LIMIT $6";
        self.records(sql, values![R::KIND, key, after, id, until, limit]).await
    }

    /// Carries out all of a batch.
    ///
    /// # Errors
    /// [`StoreError::Conflict`]: a version is not the newest, or an identity or unique key is taken. Nothing was changed then.
    pub async fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        self.write(move |tx| {
            let mut steps = batch.steps.clone();
            // Entries come last: who waits for those of others has nothing locked that these would wait for.
            steps.sort_by_key(|step| matches!(step, Step::Audit(_)));
            Box::pin(async move {
                lock(tx, &steps).await?;
                for step in steps {
                    carry_out(tx, step).await?;
                }
                Ok(())
            })
        })
        .await
    }

    async fn records<R: Record>(&self, sql: &str, values: Vec<Value>) -> Result<Vec<Versioned<R>>, StoreError> {
        self.read().await?.query(sql, values).await?.into_iter().map(versioned).collect()
    }
}

fn versioned<R: Record>(mut row: Row) -> Result<Versioned<R>, StoreError> {
    let version = row.count()?;
    let record = serde_json::from_str(&row.text()?)
        .map_err(|error| StoreError::Corrupt(format!("a record of kind {}: {error}", R::KIND)))?;
    Ok(Versioned { record, version })
}

/// Locks the records that a batch is about, always in one order: two batches about the same ones wait, and never for each other.
async fn lock(tx: &mut dyn Transaction, steps: &[Step]) -> Result<(), StoreError> {
    if tx.dialect() == Dialect::Sqlite {
        return Ok(());
    }
    let mut touched: Vec<(&str, &str)> = steps.iter().filter_map(Step::touches).collect();
    touched.sort_unstable();
    touched.dedup();
    for (kind, id) in touched {
        let sql = format!("SELECT version FROM records WHERE kind = $1 AND id = $2{}", tx.dialect().lock());
        tx.query(&sql, values![kind, id]).await?;
    }
    Ok(())
}

fn carry_out(tx: &mut dyn Transaction, step: Step) -> Pending<'_, ()> {
    Box::pin(async move {
        match step {
            Step::Insert(document) => insert(tx, document).await,
            Step::Update(document, version) => update(tx, document, version).await,
            Step::Delete { kind, id, version } => delete(tx, kind, id, version).await,
            Step::Require { kind, id, version } => require(tx, kind, id, version).await,
            Step::Audit(entry) => audit::append(tx, entry).await,
        }
    })
}

async fn insert(tx: &mut dyn Transaction, document: Document) -> Result<(), StoreError> {
    if document.id.is_empty() {
        return Err(StoreError::Invalid(format!("a record of kind {} without an identity", document.kind)));
    }
    let sql = "INSERT INTO records (kind, id, version, body) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
    let body = document.body.clone().map_err(StoreError::Invalid)?;
    let done = tx.execute(sql, values![document.kind, document.id.clone(), first_version()?, body]).await?;
    if done == 0 {
        return Err(conflict(document.kind, &document.id, "is there already"));
    }
    insert_keys(tx, document).await
}

/// A new record, in a transaction about other things.
pub(super) async fn put<R: Record>(tx: &mut dyn Transaction, record: &R) -> Result<(), StoreError> {
    insert(tx, Document::new(record)).await
}

async fn update(tx: &mut dyn Transaction, document: Document, version: i64) -> Result<(), StoreError> {
    let sql = "UPDATE records SET body = $1, version = version + 1 WHERE kind = $2 AND id = $3 AND version = $4";
    let body = document.body.clone().map_err(StoreError::Invalid)?;
    if tx.execute(sql, values![body, document.kind, document.id.clone(), version]).await? == 0 {
        return Err(conflict(document.kind, &document.id, "is not what it was"));
    }
    let sql = "DELETE FROM record_keys WHERE kind = $1 AND id = $2";
    tx.execute(sql, values![document.kind, document.id.clone()]).await?;
    insert_keys(tx, document).await
}

async fn insert_keys(tx: &mut dyn Transaction, document: Document) -> Result<(), StoreError> {
    let sql =
        "INSERT INTO record_keys (kind, name, value, id, is_unique) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    for (name, value, only) in document.keys {
        let values = values![document.kind, name, value.clone(), document.id.clone(), only];
        if tx.execute(sql, values).await? == 0 {
            return Err(conflict(document.kind, &document.id, &format!("cannot have the {name} of another: {value}")));
        }
    }
    Ok(())
}

async fn delete(tx: &mut dyn Transaction, kind: &str, id: String, version: Option<i64>) -> Result<(), StoreError> {
    let sql = "DELETE FROM records WHERE kind = $1 AND id = $2 AND ($3 IS NULL OR version = $3)";
    let done = tx.execute(sql, values![kind, id.clone(), version]).await?;
    if done == 0 && version.is_some() {
        return Err(conflict(kind, &id, "is not what it was"));
    }
    Ok(())
}

/// The row is locked already.
async fn require(tx: &mut dyn Transaction, kind: &str, id: String, version: i64) -> Result<(), StoreError> {
    let sql = "SELECT version FROM records WHERE kind = $1 AND id = $2";
    let found = tx.query(sql, values![kind, id.clone()]).await?.first_mut().map(Row::int).transpose()?;
    if found == Some(version) { Ok(()) } else { Err(conflict(kind, &id, "is not what it was")) }
}

fn conflict(kind: &str, id: &str, what: &str) -> StoreError {
    StoreError::Conflict(format!("{kind} {id} {what}"))
}

/// Versions begin anywhere, so that a record made again under an old identity is never taken for the one before.
fn first_version() -> Result<i64, StoreError> {
    Ok(super::seal::random_u64()?.cast_signed() & (i64::MAX >> 8))
}

/// As it stands in the database; none that was read is larger.
fn stored(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_times_have_the_order_of_times() {
        let times = [-5, 0, 9, 10, 1_795_000_000, i64::MAX].map(|secs| time_key(Timestamp::from_secs(secs)));
        assert!(times.is_sorted(), "{times:?}");
    }
}
