//! The state of the service, in SQLite or PostgreSQL.
//!
//! A [`Store`] is a handle that is cheap to clone. What is acknowledged is durable; what fails has changed nothing. An
//! operation that writes is carried out once it has begun, even if nobody waits for it any more.

mod audit;
mod database;
mod error;
mod history;
mod house;
mod items;
mod lease;
mod migrations;
mod postgres;
mod query;
mod record;
mod report;
mod seal;
mod sqlite;
mod standing;
mod submit;
mod tasks;
mod time;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use zeroize::Zeroizing;

pub use audit::{AuditEntry, AuditQuery};
pub use error::StoreError;
pub use history::{FIRST_EVENTS, FinishedKeys, LogEntry, NEWEST_EVENTS};
pub use house::{Census, Miscount};
pub use query::{Label, Order, TaskPlace, TaskQuery};
pub use record::{Batch, Record, Versioned, time_key};
pub use report::Reported;
pub use seal::SealKey;
pub use seal::random_uuid;
pub use tasks::Changed;

use database::{Database, Pending, Transaction, values};
use postgres::PostgresDatabase;
use sqlite::{Place, SqliteDatabase};

/// How often a transaction is tried that others get in the way of.
const TRIES: u32 = 20;

/// The store; clones are the same one.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    database: Box<dyn Database>,
    key: Option<SealKey>,
}

impl Store {
    /// Opens the store at `sqlite:PATH` (made if there is none), `sqlite::memory:` (private) or `postgres://...`.
    ///
    /// The key for secrets is that in `PATH.key`, made if there is none; a store in memory has one of its own, one in PostgreSQL
    /// none ([`Store::open_with`]).
    ///
    /// # Errors
    /// The URL is no such thing, the database is newer than this program, damaged or not to be had.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let key = match sqlite_place(url) {
            Some(Place::File(path)) => Some(SealKey::at(&key_file(&path))?),
            Some(Place::Memory) => Some(SealKey::random()?),
            None => None,
        };
        Self::begin(url, key).await
    }

    /// Opens the store with this key for secrets; all replicas need the same.
    ///
    /// # Errors
    /// Those of [`Store::open`], and another key than the one before.
    pub async fn open_with(url: &str, key: SealKey) -> Result<Self, StoreError> {
        Self::begin(url, Some(key)).await
    }

    async fn begin(url: &str, key: Option<SealKey>) -> Result<Self, StoreError> {
        let database: Box<dyn Database> = match sqlite_place(url) {
            Some(place) => Box::new(SqliteDatabase::open(&place).await?),
            None if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Box::new(PostgresDatabase::open(url).await?)
            }
            None => return Err(StoreError::Refused("its URL begins with neither sqlite: nor postgres://".into())),
        };
        migrations::migrate(database.as_ref()).await?;
        let store = Self { inner: Arc::new(Inner { database, key }) };
        store.prove_key().await?;
        Ok(store)
    }

    /// Ends all connections; what is asked afterwards fails.
    ///
    /// # Errors
    /// The database does not end in order.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.inner.database.close().await
    }

    /// The secret, sealed for the record of this kind and identity; the same store (key) opens it again.
    ///
    /// # Errors
    /// The store has no key.
    pub fn seal(&self, kind: &str, id: &str, secret: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.inner.key.as_ref().ok_or(StoreError::NoKey)?.seal(kind, id, secret)
    }

    /// The secret that was sealed for the record of this kind and identity.
    ///
    /// # Errors
    /// The store has no key, or the key, the kind or the identity is another, or the bytes are.
    pub fn unseal(&self, kind: &str, id: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        self.inner.key.as_ref().ok_or(StoreError::NoKey)?.unseal(kind, id, sealed)
    }

    /// Refuses a key other than that of the first start: its loss is to be noticed then, not with the first credential.
    async fn prove_key(&self) -> Result<(), StoreError> {
        let Some(key) = self.inner.key.clone() else { return Ok(()) };
        self.write(move |tx| {
            let key = key.clone();
            Box::pin(async move {
                let sql = "INSERT INTO meta (name, value) VALUES ('key', $1) ON CONFLICT (name) DO NOTHING";
                tx.execute(sql, values![key.seal("meta", "key", b"")?]).await?;
                let mut rows = tx.query("SELECT value FROM meta WHERE name = 'key'", values![]).await?;
                let sealed = rows.first_mut().map_or(Ok(Vec::new()), |row| row.blob())?;
                let another = |_| StoreError::WrongKey("the key is not that of the first start".into());
                key.unseal("meta", "key", &sealed).map(drop).map_err(another)
            })
        })
        .await
    }

    async fn read(&self) -> Result<Box<dyn Transaction>, StoreError> {
        self.inner.database.read().await
    }

    /// Carries out `work` in one transaction: whole or not at all, again where another transaction got into its way,
    /// and to its end even when the caller goes away.
    async fn write<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'t> Fn(&'t mut dyn Transaction) -> Pending<'t, T> + Send + Sync + 'static,
    {
        let inner = self.inner.clone();
        let running = tokio::spawn(async move {
            let mut last = StoreError::Unavailable("not tried".into());
            for tried in 0..TRIES {
                match attempt(inner.database.as_ref(), &work).await {
                    Err(StoreError::Again(text)) => last = StoreError::Unavailable(text),
                    other => return other,
                }
                // By chance, so that those who met do not meet again.
                sleep(Duration::from_millis(seal::random_u64()? % (2 << tried.min(7)))).await;
            }
            Err(last)
        });
        match running.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(StoreError::Unavailable("the program ends".into())),
        }
    }
}

async fn attempt<T, W>(database: &dyn Database, work: &W) -> Result<T, StoreError>
where
    W: for<'t> Fn(&'t mut dyn Transaction) -> Pending<'t, T>,
{
    let mut tx = database.write().await?;
    let result = work(tx.as_mut()).await?;
    tx.commit().await?;
    Ok(result)
}

/// Where a SQLite database is; `None` for other URLs.
fn sqlite_place(url: &str) -> Option<Place> {
    let rest = url.strip_prefix("sqlite:")?;
    if rest == ":memory:" {
        return Some(Place::Memory);
    }
    Some(Place::File(PathBuf::from(rest.strip_prefix("//").unwrap_or(rest))))
}

fn key_file(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".key");
    PathBuf::from(name)
}

/// PostgreSQL has no text with NUL; so there is none in either.
fn without_nul(text: Option<String>) -> Result<Option<String>, StoreError> {
    match text {
        Some(text) if text.contains('\0') => Err(StoreError::Invalid("text with a NUL character".into())),
        text => Ok(text),
    }
}
