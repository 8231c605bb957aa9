//! What unit tests begin with.

use std::sync::Arc;

use crate::clock::Clock;
use crate::store::Store;
use crate::{Config, Service};

/// Settings as tests have them.
pub fn config() -> Config {
    Config { url: "http://127.0.0.1:1".to_owned(), domain: "example.org".to_owned() }
}

/// A service that knows nothing yet.
pub async fn bare(clock: Arc<dyn Clock>) -> Service {
    Service::new(config(), clock, Store::open("sqlite::memory:").await.expect("memory is there"))
}
