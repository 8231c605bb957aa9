//! What the store promises, of each database.

mod records;

use whimbrel_service::store::Store;

/// A store in memory.
async fn memory() -> Store {
    Store::open("sqlite::memory:").await.expect("a store in memory opens")
}
