//! What all requests share.

use std::sync::Arc;

use axum::Router;

use crate::auth::{self, Auth};
use crate::clock::Clock;
use crate::endpoints;
use crate::http::{Route, router};
use crate::store::Store;

/// Settings of the service.
#[derive(Debug, Clone)]
pub struct Config {
    /// How clients reach it, without a slash at the end: `https://transfer.example.org`. It names the issuer of tokens, too.
    pub url: String,
    /// What follows the `@` in the names of people here, and behind `clients.` in those of clients.
    pub domain: String,
}

/// The service.
pub struct Service {
    /// Settings.
    pub config: Config,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is kept.
    pub store: Store,
    /// The issuer.
    pub auth: Auth,
}

impl Service {
    /// A service.
    pub fn new(config: Config, clock: Arc<dyn Clock>, store: Store) -> Self {
        Self { config, clock, store, auth: Auth::default() }
    }

    /// The whole table of routes: each module adds its own.
    pub fn routes() -> Vec<Route> {
        [auth::routes(), endpoints::routes()].concat()
    }

    /// The router of the whole table.
    pub fn router(self: &Arc<Self>) -> Router {
        router(self, &Self::routes())
    }
}
