//! The store in a SQLite file: for one service on one host.
//!
//! One connection writes, so that writers wait in line here and not in SQLite's busy handler; others read at the same time
//! (WAL). `synchronous = FULL`: a commit is on disk before it is acknowledged.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::query::Query;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection as _, Row as _, Sqlite, TypeInfo, ValueRef};

use super::StoreError;
use super::database::{Cell, Database, Dialect, Pending, Row, Transaction, Value};
use super::error::from_driver;

/// Connections that read at the same time.
const READERS: u32 = 4;
/// Longest wait for a connection, and for other programs that hold the file.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// In memory, gone with the last handle.
    Memory,
    /// In a file.
    File(PathBuf),
}

/// A SQLite database.
pub(super) struct SqliteDatabase {
    writer: SqlitePool,
    /// Those of a database in memory read with the writer: it is that connection's own.
    readers: Option<SqlitePool>,
}

impl SqliteDatabase {
    /// Opens it, and makes the file if there is none, readable for its owner only.
    pub(super) async fn open(place: &Place) -> Result<Self, StoreError> {
        let Place::File(path) = place else {
            let writer = pool(SqliteConnectOptions::new().in_memory(true), 1, false).await?;
            return Ok(Self { writer, readers: None });
        };
        make_private(path).map_err(|error| StoreError::Refused(format!("{}: {error}", path.display())))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let writer = pool(options.clone(), 1, true).await?;
        let readers = pool(options.pragma("query_only", "ON"), READERS, true).await?;
        Ok(Self { writer, readers: Some(readers) })
    }
}

async fn pool(options: SqliteConnectOptions, most: u32, is_file: bool) -> Result<SqlitePool, StoreError> {
    let options = options
        .foreign_keys(true)
        .busy_timeout(PATIENCE)
        // In pages of 1 KiB: 64 MiB.
        .pragma("cache_size", "-65536")
        .disable_statement_logging();
    let pool = SqlitePoolOptions::new()
        .max_connections(most)
        .acquire_timeout(PATIENCE)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false);
    // What a full disk or a failing one ends, SQLite rolls back by itself, and sqlx 0.8 goes on to count it as open: on such a
    // connection nothing could ever be begun again. The ping waits for what is queued. A database in memory has one connection.
    let pool = match is_file {
        true => pool.after_release(|connection, _| {
            Box::pin(async move {
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        }),
        false => pool,
    };
    pool.connect_with(options).await.map_err(meaning)
}

/// SQLite's companions of the file (`-wal`, `-shm`) get its permissions.
fn make_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}

impl Database for SqliteDatabase {
    fn read(&self) -> Pending<'_, Box<dyn Transaction>> {
        Box::pin(begin(self.readers.as_ref().unwrap_or(&self.writer), "BEGIN"))
    }

    fn write(&self) -> Pending<'_, Box<dyn Transaction>> {
        Box::pin(begin(&self.writer, "BEGIN IMMEDIATE"))
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async {
            if let Some(readers) = &self.readers {
                readers.close().await;
            }
            self.writer.close().await;
            Ok(())
        })
    }
}

/// Begins a transaction, to the end although nobody may wait for it any more: whoever asked may have gone, and a connection on which a
/// transaction was begun for nobody (between BEGIN and the look whether it did, in sqlx 0.8) would never begin another.
async fn begin(pool: &SqlitePool, statement: &'static str) -> Result<Box<dyn Transaction>, StoreError> {
    let pool = pool.clone();
    let begun = tokio::spawn(async move { pool.begin_with(statement).await }).await;
    let inner = begun.map_err(|error| StoreError::Unavailable(error.to_string()))?.map_err(meaning)?;
    Ok(Box::new(SqliteTransaction(inner)))
}

struct SqliteTransaction(sqlx::Transaction<'static, Sqlite>);

impl Transaction for SqliteTransaction {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn execute<'a>(&'a mut self, sql: &'a str, values: Vec<Value>) -> Pending<'a, u64> {
        Box::pin(async move {
            let done = bound(sql, values)?.execute(&mut *self.0).await.map_err(meaning)?;
            Ok(done.rows_affected())
        })
    }

    fn query<'a>(&'a mut self, sql: &'a str, values: Vec<Value>) -> Pending<'a, Vec<Row>> {
        Box::pin(async move {
            let rows = bound(sql, values)?.fetch_all(&mut *self.0).await.map_err(meaning)?;
            rows.iter().map(row).collect()
        })
    }

    fn commit(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move { self.0.commit().await.map_err(meaning) })
    }
}

fn bound(sql: &str, values: Vec<Value>) -> Result<Query<'_, Sqlite, SqliteArguments<'_>>, StoreError> {
    values.into_iter().try_fold(sqlx::query(sql), |query, value| {
        Ok(match value {
            Value::Int(value) => query.bind(value),
            Value::Text(value) => query.bind(super::without_nul(value)?),
            Value::Blob(value) => query.bind(value),
        })
    })
}

fn row(row: &SqliteRow) -> Result<Row, StoreError> {
    let cells = (0..row.len()).map(|column| {
        let value = row.try_get_raw(column)?;
        if value.is_null() {
            return Ok(Cell::Null);
        }
        let kind: Cow<'_, _> = value.type_info();
        match kind.name() {
            "INTEGER" => row.try_get(column).map(Cell::Int),
            "TEXT" => row.try_get(column).map(Cell::Text),
            _ => row.try_get(column).map(Cell::Blob),
        }
    });
    Ok(Row::new(cells.collect::<Result<_, _>>().map_err(meaning)?))
}

/// Result codes: <https://www.sqlite.org/rescode.html>; the lower eight bits are the primary ones.
fn meaning(error: sqlx::Error) -> StoreError {
    from_driver(error, |code, text| {
        Some(match code.parse::<u32>().ok()? & 0xff {
            5 | 6 | 10 => StoreError::Unavailable(text),  // BUSY, LOCKED, IOERR
            3 | 8 | 14 | 23 => StoreError::Refused(text), // PERM, READONLY, CANTOPEN, AUTH
            11 | 26 => StoreError::Corrupt(text),         // CORRUPT, NOTADB
            13 => StoreError::Full(text),                 // FULL
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn whoever_goes_while_a_transaction_begins_leaves_the_connection_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::File(directory.path().join("store.sqlite"));
        let database = SqliteDatabase::open(&place).await.unwrap();
        for turns in 0..3000 {
            let going = async {
                for _ in 0..turns {
                    yield_now().await;
                }
            };
            tokio::select! {
                biased;
                () = going => {}
                begun = database.write() => drop(begun.unwrap()),
            }
        }
        database.write().await.unwrap().commit().await.unwrap();
    }
}
