//! What all requests share.

use std::sync::Arc;

use axum::Router;

use crate::clock::Clock;
use crate::http::{Route, router};

/// Settings of the service.
#[derive(Debug, Clone)]
pub struct Config {
    /// How clients reach it, without a slash at the end: `https://transfer.example.org`. It names the issuer of tokens, too.
    pub url: String,
    /// What follows the `@` in the names of clients, and of people without a domain of their own.
    pub domain: String,
}

/// The service.
pub struct Service {
    /// Settings.
    pub config: Config,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Service {
    /// A service.
    pub fn new(config: Config, clock: Arc<dyn Clock>) -> Self {
        Self { config, clock }
    }

    /// The whole table of routes.
    pub fn routes() -> Vec<Route> {
        Vec::new()
    }

    /// The router of the whole table.
    pub fn router(self: &Arc<Self>) -> Router {
        router(self, &Self::routes())
    }
}
