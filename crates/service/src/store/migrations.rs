//! The versions of the tables. A version that was released never changes; what is new is another one.

use super::StoreError;
use super::database::{Database, Dialect, Transaction, values};

/// Statements that bring a database from each version to the next, in the order of versions from 0.
const MIGRATIONS: &[&str] =
    &[include_str!("migrations/0001.sql"), include_str!("migrations/0002.sql"), include_str!("migrations/0003.sql")];

/// Number of the lock under which PostgreSQL's replicas migrate, one after the other: any constant of our own.
const LOCK: i64 = 0x7768_696d_6272_656c;

/// Brings the tables to the newest version, each step whole or not at all.
///
/// # Errors
/// They are newer than this program.
pub(super) async fn migrate(database: &dyn Database) -> Result<(), StoreError> {
    let mut tx = database.write().await?;
    if tx.dialect() == Dialect::Postgres {
        // It gives an answer, of type void.
        tx.execute("SELECT pg_advisory_xact_lock($1)", values![LOCK]).await?;
    }
    let sql = "CREATE TABLE IF NOT EXISTS schema_version (place BIGINT NOT NULL PRIMARY KEY, version BIGINT NOT NULL)";
    tx.execute(&tx.dialect().definition(sql), values![]).await?;
    let mut rows = tx.query("SELECT version FROM schema_version", values![]).await?;
    let found = rows.first_mut().map_or(Ok(0), |row| row.int())?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    let done = usize::try_from(found).map_err(|_| StoreError::Corrupt(format!("version {found}")))?;
    for migration in &MIGRATIONS[done..] {
        apply(tx.as_mut(), migration).await?;
    }
    let sql =
        "INSERT INTO schema_version (place, version) VALUES (1, $1) ON CONFLICT (place) DO UPDATE SET version = $1";
    tx.execute(sql, values![known]).await?;
    tx.commit().await
}

async fn apply(tx: &mut dyn Transaction, migration: &str) -> Result<(), StoreError> {
    for statement in migration.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        tx.execute(&tx.dialect().definition(statement), values![]).await?;
    }
    Ok(())
}
