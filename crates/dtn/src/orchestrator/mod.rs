//! Carries out tasks and operations for the managed service.
//!
//! An [`Orchestrator`] asks a [`Desk`] for orders. Each task runs on a thread of its own with the machinery of `cp`
//! ([`crate::client::copy`]), under a lease: what became of its items goes back in reports ([`report`]), and a lease that is
//! another's ends the work at once. Operations (what file managers do) share one thread with logged-in sessions.

mod barrier;
mod copies;
mod delete;
mod exposed;
mod fate;
mod follow;
mod foresee;
mod hold;
mod items;
mod keys;
mod ledger;
mod look;
mod mirror;
mod operate;
mod options;
mod parents;
mod removal;
mod report;
mod roundup;
mod run;
mod sift;
mod site;
mod transfer;
mod work;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;
use whimbrel_engine::dispatch::{LEASE_SECONDS, Request, Response};
use whimbrel_engine::retry::RetryPolicy;
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::client::local::LocalOptions;

/// The service, as an orchestrator sees it: in this process, or over HTTPS.
pub trait Desk: Send + Sync + 'static {
    /// Asks something. Several questions may be open at once.
    ///
    /// A fault means that nobody knows whether the service has heard it; whoever must know asks again.
    fn ask(&self, request: Request) -> impl Future<Output = Result<Response, Fault>> + Send;

    /// A connection to a server that takes none, which it has made itself, as an end of a socket pair in non-blocking mode.
    ///
    /// # Errors
    /// There is none in time, or nobody here keeps such connections.
    fn meet(&self, server: Uuid) -> impl Future<Output = Result<UnixStream, Fault>> + Send {
        let fault = Fault::new(FaultCode::NotSupported, "connect").subject(server.to_string()).side(Side::Us);
        async { Err(fault.detail("this orchestrator cannot reach servers that only make connections")) }
    }
}

/// What an orchestrator obeys.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Tasks at once; default 16.
    pub tasks: u32,
    /// Attempts at a file within one run of a task; default as for `cp`, three attempts.
    pub retry: RetryPolicy,
    /// Shortest wait before a task is tried again whose run brought nothing; doubled each time up to
    /// [`Limits::longest_wait`]; default 5 s.
    pub first_wait: Duration,
    /// Default 10 min.
    pub longest_wait: Duration,
    /// First wait after a question that the service did not answer; doubled up to 10 s; default 0.5 s.
    pub service_wait: Duration,
    /// How long changes of items wait for others before they are reported; default 500 ms.
    pub batch: Duration,
    /// How often it is told how fast a task goes; default 1 s.
    pub gauge: Duration,
    /// How long a lease holds that is not renewed; default [`LEASE_SECONDS`].
    pub lease: Duration,
    /// How long a session without work is kept for operations; default 60 s.
    pub idle: Duration,
    /// The data side of this host; it is not used where both ends are servers.
    pub local: LocalOptions,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tasks: 16,
            retry: RetryPolicy { attempts: 3, ..RetryPolicy::default() },
            first_wait: Duration::from_secs(5),
            longest_wait: Duration::from_secs(600),
            service_wait: Duration::from_millis(500),
            batch: Duration::from_millis(500),
            gauge: Duration::from_secs(1),
            lease: Duration::from_secs(LEASE_SECONDS),
            idle: Duration::from_secs(60),
            local: LocalOptions::default(),
        }
    }
}

/// One life of an orchestrator.
#[derive(Debug)]
pub struct Orchestrator {
    limits: Limits,
    name: Option<Uuid>,
}

impl Orchestrator {
    /// One that has not begun.
    pub fn new(limits: Limits) -> Self {
        Self { limits, name: None }
    }

    /// One that goes by the same name when it is started again, so that the tasks it held before need not wait for the end of
    /// their leases. No two that run may share a name: each that begins would take the other's tasks away.
    #[must_use]
    pub fn named(self, name: Uuid) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Works until `stop` turns true, or its sender is gone; then all work ends early and orderly, and is reported.
    ///
    /// Dropped, it leaves its tasks to whoever gets their leases next: threads end by themselves, without a report.
    ///
    /// # Errors
    /// The threads it needs cannot be started.
    pub async fn run<D: Desk>(self, desk: Arc<D>, stop: watch::Receiver<bool>) -> Result<(), Fault> {
        run::run(self.limits, self.name, desk, stop).await
    }
}
