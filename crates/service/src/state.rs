//! What all requests share.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::watch;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{Request, Response};
use whimbrel_engine::listing::Timestamp;

use crate::auth::{self, Auth};
use crate::clock::Clock;
use crate::desk::{Desk, Slots};
use crate::house::House;
use crate::http::large::Room;
use crate::http::{Route, router};
use crate::metrics::Requests;
use crate::notices::Notifier;
use crate::reach::SiteTokens;
use crate::replicas::Replicas;
use crate::servers::rendezvous::Rendezvous;
use crate::store::Store;
use crate::tasks::plan::Plans;
use crate::tasks::progress::Streams;
use crate::{
    audit, deploy, desk, endpoints, files, grid, groups, house, matrix, metrics, notices, overview, replicas, servers,
    tasks, timers,
};

/// Seconds.
const MINUTE: i64 = 60;
/// Seconds.
const HOUR: i64 = 3600;

/// How often deadlines are looked after.
const LOOK_AFTER: Duration = Duration::from_secs(1);

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
    /// What orchestrators are given.
    pub desk: Desk,
    /// Tokens for DTNs that are used again.
    pub site_tokens: SiteTokens,
    /// Answers that go on for long.
    pub streams: Streams,
    /// Requests that were answered.
    pub requests: Requests,
    /// Who has looked at what tasks would do.
    pub plans: Plans,
    /// Where large documents are waited for.
    pub room: Room,
    /// How long what is over is kept.
    pub house: House,
    /// How owners are told of their tasks.
    pub notifier: Notifier,
    /// Servers that connect to this service.
    pub rendezvous: Rendezvous,
    /// Others of this service over the same store.
    pub replicas: Replicas,
}

impl Service {
    /// A service.
    pub fn new(config: Config, clock: Arc<dyn Clock>, store: Store) -> Self {
        let desk = Desk::new(store.clone(), Slots::default());
        Self {
            config,
            clock,
            store,
            auth: Auth::default(),
            desk,
            site_tokens: SiteTokens::default(),
            streams: Streams::default(),
            plans: Plans::default(),
            requests: Requests::default(),
            room: Room::default(),
            house: House::default(),
            notifier: Notifier::default(),
            rendezvous: Rendezvous::default(),
            replicas: Replicas::default(),
        }
    }

    /// The whole table of routes: each module adds its own.
    pub fn routes() -> Vec<Route> {
        [
            audit::routes(),
            auth::routes(),
            tasks::routes::routes(),
            tasks::manage::routes(),
            timers::routes(),
            matrix::routes(),
            notices::routes(),
            house::routes(),
            metrics::routes(),
            overview::routes(),
            files::routes::routes(),
            endpoints::routes(),
            groups::routes(),
            deploy::routes(),
            grid::routes(),
            servers::routes(),
            replicas::routes(),
            desk::routes::routes(),
        ]
        .concat()
    }

    /// The router of the whole table.
    pub fn router(self: &Arc<Self>) -> Router {
        router(self, &Self::routes())
    }

    /// Answers an orchestrator.
    ///
    /// # Errors
    /// The store cannot be used: nothing was done, and the same may be asked again.
    pub async fn dispatch(&self, request: Request) -> Result<Response, Fault> {
        self.desk.answer(self, request).await
    }

    /// Has keys to sign with: making one takes most of a second, for which no task is to wait.
    async fn make_keys(&self) {
        if let Err(error) = self.jwks().await {
            tracing::warn!("keys are made when they are needed: {error}");
        }
    }

    /// Does what time brings about, until `stop` is `true` or its sender gone: deadlines, timers, and ends of tokens.
    pub async fn look_after(&self, mut stop: watch::Receiver<bool>) {
        let mut tidied = self.clock.now().secs / HOUR;
        let mut heeded = 0;
        self.make_keys().await;
        loop {
            let stopped = tokio::time::timeout(LOOK_AFTER, stop.wait_for(|stop| *stop)).await;
            if stopped.is_ok() {
                self.streams.end();
                return;
            }
            match self.store.expire(self.clock.now()).await {
                Ok(expired) if expired.is_empty() => {}
                Ok(_) => self.desk.ring(),
                Err(error) => tracing::warn!("deadlines are not looked after: {error}"),
            }
            if let Err(error) = self.run_timers().await {
                tracing::warn!("timers do not run: {error}");
            }
            if let Err(error) = self.run_matrices().await {
                tracing::warn!("matrices are not filled: {error}");
            }
            let minute = self.clock.now().secs / MINUTE;
            // A clock may be set back.
            if minute != heeded {
                if let Err(error) = self.heed_pauses_of_waiting().await {
                    tracing::warn!("tasks that are paused are not looked after: {error}");
                }
                if let Err(error) = self.heed_credentials(None).await {
                    tracing::warn!("tasks that wait for credentials are not looked after: {error}");
                }
                heeded = minute;
            }
            let hour = self.clock.now().secs / HOUR;
            if hour != tidied {
                // What is left of an hour that could not be tidied is dead weight, and no danger.
                match self.forget_expired(Timestamp::from_secs((hour - 1) * HOUR)).await {
                    Ok(count) => tracing::debug!(count, "tokens that have ended are forgotten"),
                    Err(error) => tracing::warn!("tokens that have ended are kept: {error}"),
                }
                if let Err(error) = self.forget_cancellations().await {
                    tracing::warn!("what managers have cancelled is remembered: {error}");
                }
                if let Err(error) = self.forget_credentials().await {
                    tracing::warn!("credentials that have ended are kept: {error}");
                }
                self.make_keys().await;
                tidied = hour;
            }
        }
    }
}
