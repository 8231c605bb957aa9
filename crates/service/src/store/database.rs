//! The seam to databases: transactions that take SQL text.
//!
//! SQL is written once, for SQLite and PostgreSQL: parameters are `$1`, columns hold 64-bit integers, text or bytes, and
//! what differs is in [`Dialect`].

use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;

use super::StoreError;

/// Work on a database that goes on.
pub(super) type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A database.
pub(super) trait Database: Send + Sync {
    /// A transaction that only reads, and sees one state of everything.
    fn read(&self) -> Pending<'_, Box<dyn Transaction>>;

    /// A transaction that may write. Rows that it has locked ([`Dialect::lock`]) or changed are its own until its end.
    fn write(&self) -> Pending<'_, Box<dyn Transaction>>;

    /// Ends all connections.
    fn close(&self) -> Pending<'_, ()>;
}

/// Statements that count together or not at all; dropped without [`Transaction::commit`], not at all.
pub(super) trait Transaction: Send {
    /// What it understands.
    fn dialect(&self) -> Dialect;

    /// Carries out a statement, and tells how many rows it changed.
    fn execute<'a>(&'a mut self, sql: &'a str, values: Vec<Value>) -> Pending<'a, u64>;

    /// What a statement answers.
    fn query<'a>(&'a mut self, sql: &'a str, values: Vec<Value>) -> Pending<'a, Vec<Row>>;

    /// Makes it durable.
    fn commit(self: Box<Self>) -> Pending<'static, ()>;
}

/// What differs between databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// SQLite: one writer at a time, so that nothing needs a lock.
    Sqlite,
    /// PostgreSQL, at READ COMMITTED.
    Postgres,
}

impl Dialect {
    /// What ends a SELECT whose rows are changed afterwards.
    pub(super) fn lock(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE",
        }
    }

    /// The same, without rows that somebody else has locked.
    pub(super) fn lock_free(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// The parameters of `rows` rows of `columns` each, as VALUES has them.
    ///
    /// Parameters without a number for SQLite: it looks numbered ones up in a list, each time, which is quadratic.
    pub(super) fn rows(self, rows: usize, columns: usize) -> String {
        let mut text = String::with_capacity(rows * columns * 6);
        for row in 0..rows {
            text.push_str(if row == 0 { "(" } else { ",(" });
            for column in 0..columns {
                if column > 0 {
                    text.push(',');
                }
                match self {
                    Self::Sqlite => text.push('?'),
                    // Writing to a string cannot fail.
                    Self::Postgres => drop(write!(text, "${}", row * columns + column + 1)),
                }
            }
            text.push(')');
        }
        text
    }

    /// Definitions of tables, which are written with `BIGINT`, `TEXT`, `BLOB` and `COUNTER` (a key that counts up).
    pub(super) fn definition(self, sql: &str) -> String {
        match self {
            Self::Sqlite => {
                let sql = sql.replace("COUNTER", "INTEGER PRIMARY KEY AUTOINCREMENT").replace("BIGINT", "INTEGER");
                if sql.trim_start().starts_with("CREATE TABLE") { format!("{sql} STRICT") } else { sql }
            }
            // Order is that of bytes, as SQLite's is.
            Self::Postgres => sql
                .replace("COUNTER", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
                .replace("TEXT", "TEXT COLLATE \"C\"")
                .replace("BLOB", "BYTEA"),
        }
    }
}

/// Sizes that are powers of two and add up to `count`, none above `most`: a statement for many rows is prepared once for
/// each size, and there are few.
pub(super) fn portions(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let mut left = count;
    std::iter::from_fn(move || {
        let largest = 1 << left.checked_ilog2()?;
        let portion = largest.min(most);
        left -= portion;
        Some(portion)
    })
}

/// A parameter. NULL has a type too, for PostgreSQL asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Blob(Option<Vec<u8>>),
}

macro_rules! value_from {
    ($($kind:ident: $type:ty, $make:expr;)*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$kind(Some($make(value)))
            }
        }
        impl From<Option<$type>> for Value {
            fn from(value: Option<$type>) -> Self {
                Self::$kind(value.map($make))
            }
        }
    )*};
}

value_from! {
    Int: i64, |value| value;
    Int: bool, i64::from;
    Int: u32, i64::from;
    Text: &str, str::to_owned;
    Text: String, |value| value;
    Text: uuid::Uuid, |value: uuid::Uuid| value.to_string();
    Blob: Vec<u8>, |value| value;
}

/// The parameters of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::database::Value::from($value)),*] };
}
pub(super) use values;

/// What stands in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// A row of an answer; columns are taken out from left to right.
#[derive(Debug)]
pub(super) struct Row(std::vec::IntoIter<Cell>);

impl Row {
    pub(super) fn new(cells: Vec<Cell>) -> Self {
        Self(cells.into_iter())
    }

    fn next(&mut self) -> Result<Cell, StoreError> {
        self.0.next().ok_or_else(|| StoreError::Corrupt("a row has too few columns".into()))
    }

    /// An integer, or NULL.
    pub(super) fn maybe_int(&mut self) -> Result<Option<i64>, StoreError> {
        match self.next()? {
            Cell::Null => Ok(None),
            Cell::Int(value) => Ok(Some(value)),
            other => Err(unexpected("an integer", &other)),
        }
    }

    /// Text, or NULL.
    pub(super) fn maybe_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.next()? {
            Cell::Null => Ok(None),
            Cell::Text(value) => Ok(Some(value)),
            other => Err(unexpected("text", &other)),
        }
    }

    /// Bytes, or NULL.
    pub(super) fn maybe_blob(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.next()? {
            Cell::Null => Ok(None),
            Cell::Blob(value) => Ok(Some(value)),
            other => Err(unexpected("bytes", &other)),
        }
    }

    /// An integer.
    pub(super) fn int(&mut self) -> Result<i64, StoreError> {
        self.maybe_int()?.ok_or_else(|| unexpected("an integer", &Cell::Null))
    }

    /// An integer that counts something.
    pub(super) fn count(&mut self) -> Result<u64, StoreError> {
        let value = self.int()?;
        u64::try_from(value).map_err(|_| StoreError::Corrupt(format!("{value} is below zero")))
    }

    /// Text.
    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        self.maybe_text()?.ok_or_else(|| unexpected("text", &Cell::Null))
    }

    /// Bytes.
    pub(super) fn blob(&mut self) -> Result<Vec<u8>, StoreError> {
        self.maybe_blob()?.ok_or_else(|| unexpected("bytes", &Cell::Null))
    }
}

fn unexpected(wanted: &str, found: &Cell) -> StoreError {
    let kind = match found {
        Cell::Null => "NULL",
        Cell::Int(_) => "an integer",
        Cell::Text(_) => "text",
        Cell::Blob(_) => "bytes",
    };
    StoreError::Corrupt(format!("a column holds {kind} instead of {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_few_sizes_that_add_up() {
        assert_eq!(portions(1000, 256).collect::<Vec<_>>(), [256, 256, 256, 128, 64, 32, 8]);
        assert_eq!(portions(0, 256).count(), 0);
        for count in 0..600 {
            assert_eq!(portions(count, 128).sum::<usize>(), count);
            assert!(portions(count, 128).all(|portion| portion <= 128 && portion.is_power_of_two()));
        }
    }

    #[test]
    fn each_database_gets_parameters_and_definitions_that_it_knows() {
        assert_eq!(Dialect::Sqlite.rows(2, 2), "(?,?),(?,?)");
        assert_eq!(Dialect::Postgres.rows(2, 2), "($1,$2),($3,$4)");
        let sql = "CREATE TABLE t (number COUNTER, name TEXT, body BLOB, size BIGINT)";
        assert_eq!(
            Dialect::Sqlite.definition(sql),
            "CREATE TABLE t (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, body BLOB, size INTEGER) STRICT"
        );
        assert!(Dialect::Postgres.definition(sql).contains("name TEXT COLLATE \"C\", body BYTEA, size BIGINT"));
    }

    #[test]
    fn a_row_that_is_not_what_was_written_is_told() {
        let mut row = Row::new(vec![Cell::Int(-1), Cell::Null, Cell::Text("x".into())]);
        assert!(matches!(row.count(), Err(StoreError::Corrupt(_))));
        assert!(matches!(row.text(), Err(StoreError::Corrupt(_))));
        assert!(matches!(row.blob(), Err(StoreError::Corrupt(_))));
        assert!(matches!(row.int(), Err(StoreError::Corrupt(_))));
    }
}
