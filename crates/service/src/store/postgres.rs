//! The store in PostgreSQL: for several replicas of the service.
//!
//! Transactions that write run at READ COMMITTED and lock the rows that they decide by; those that only read see one state
//! (REPEATABLE READ).

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{ConnectOptions, Executor as _, Postgres, Row as _, TypeInfo, ValueRef};
use tokio::time::timeout;

use super::StoreError;
use super::database::{Cell, Database, Dialect, Pending, Row, Transaction, Value};
use super::error::from_driver;

/// Most connections of one replica; PostgreSQL allows 100 in all unless it is told otherwise.
const CONNECTIONS: u32 = 16;
/// Longest wait for a connection: users wait meanwhile, and what orchestrators report comes again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest wait for an answer: one that comes later belongs to a server that is gone, of which nothing else may tell. What a night tidies takes
/// minutes.
const LONGEST: Duration = Duration::from_secs(900);
/// What a replica whose host is gone may hold up the others for: its transactions end with their silence, and its connections
/// with the host's.
const SETTINGS: &str = "SET idle_in_transaction_session_timeout = '60s'; SET tcp_keepalives_idle = 30; \
                        SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3";

/// A database of PostgreSQL.
pub(super) struct PostgresDatabase {
    pool: PgPool,
}

impl PostgresDatabase {
    /// Connects to the database that the URL names (`postgres://user:password@host:port/name`).
    pub(super) async fn open(url: &str) -> Result<Self, StoreError> {
        let options: PgConnectOptions = url.parse().map_err(meaning)?;
        let options = options.application_name("whimbrel").disable_statement_logging();
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
        let pool =
            pool.after_connect(|connection, _| Box::pin(async move { connection.execute(SETTINGS).await.map(drop) }));
        Ok(Self { pool: pool.connect_with(options).await.map_err(meaning)? })
    }
}

impl Database for PostgresDatabase {
    fn read(&self) -> Pending<'_, Box<dyn Transaction>> {
        Box::pin(begin(&self.pool, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))
    }

    fn write(&self) -> Pending<'_, Box<dyn Transaction>> {
        Box::pin(begin(&self.pool, "BEGIN ISOLATION LEVEL READ COMMITTED"))
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.pool.close().await;
            Ok(())
        })
    }
}

async fn begin(pool: &PgPool, statement: &'static str) -> Result<Box<dyn Transaction>, StoreError> {
    let inner = in_time(pool.begin_with(statement)).await?;
    Ok(Box::new(PostgresTransaction(inner)))
}

struct PostgresTransaction(sqlx::Transaction<'static, Postgres>);

impl Transaction for PostgresTransaction {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute<'a>(&'a mut self, sql: &'a str, values: Vec<Value>) -> Pending<'a, u64> {
        Box::pin(async move {
            let done = in_time(bound(sql, values)?.execute(&mut *self.0)).await?;
            Ok(done.rows_affected())
        })
    }

    fn query<'a>(&'a mut self, sql: &'a str, values: Vec<Value>) -> Pending<'a, Vec<Row>> {
        Box::pin(async move {
            let rows = in_time(bound(sql, values)?.fetch_all(&mut *self.0)).await?;
            rows.iter().map(row).collect()
        })
    }

    fn commit(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(in_time(self.0.commit()))
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    let late = |_| StoreError::Unavailable(format!("no answer in {} s", LONGEST.as_secs()));
    timeout(LONGEST, answer).await.map_err(late)?.map_err(meaning)
}

fn bound(sql: &str, values: Vec<Value>) -> Result<Query<'_, Postgres, PgArguments>, StoreError> {
    values.into_iter().try_fold(sqlx::query(sql), |query, value| {
        Ok(match value {
            Value::Int(value) => query.bind(value),
            Value::Text(value) => query.bind(super::without_nul(value)?),
            Value::Blob(value) => query.bind(value),
        })
    })
}

fn row(row: &PgRow) -> Result<Row, StoreError> {
    let cells = (0..row.len()).map(|column| {
        let value = row.try_get_raw(column)?;
        if value.is_null() {
            return Ok(Cell::Null);
        }
        let kind = value.type_info();
        match kind.name() {
            "INT8" => row.try_get(column).map(Cell::Int),
            "INT4" => row.try_get::<i32, _>(column).map(|value| Cell::Int(value.into())),
            "BYTEA" => row.try_get(column).map(Cell::Blob),
            _ => row.try_get(column).map(Cell::Text),
        }
    });
    Ok(Row::new(cells.collect::<Result<_, _>>().map_err(meaning)?))
}

/// SQLSTATE: <https://www.postgresql.org/docs/current/errcodes-appendix.html>; the first two letters are the class.
fn meaning(error: sqlx::Error) -> StoreError {
    from_driver(error, |code, text| {
        Some(match code {
            "40001" | "40P01" => StoreError::Again(text),
            "42501" => StoreError::Refused(text),
            "53100" => StoreError::Full(text),
            "XX001" | "XX002" => StoreError::Corrupt(text),
            _ => match code.get(..2)? {
                // Connections, resources, an administrator's shutdown, the system.
                "08" | "53" | "57" | "58" => StoreError::Unavailable(text),
                // Logins, databases that are not there, rights, read-only replicas.
                "28" | "3D" | "25" => StoreError::Refused(text),
                _ => return None,
            },
        })
    })
}
