//! What a copy may do and how.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use whimbrel_engine::Fault;
use whimbrel_engine::listing::Object;
use whimbrel_engine::plan::{Links, PlanOptions};
use whimbrel_engine::retry::RetryPolicy;
use whimbrel_engine::tune::Setting;
use whimbrel_transport::digest::Algorithm;

use super::expect::{Expect, Expected};
use super::hosts::Hosts;
use super::local::LocalOptions;
use super::plan::base_name;
use super::shared::Route;
use super::target::{CredentialFiles, SessionOptions, Target};

/// A path on a server or on this host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The server; `None`: this host.
    pub target: Option<Target>,
    /// The path, bytes; absolute on this host.
    pub path: Vec<u8>,
}

impl Place {
    /// The same place with another path.
    pub fn with_path(&self, path: impl Into<Vec<u8>>) -> Self {
        Self { target: self.target.clone(), path: path.into() }
    }

    /// The last name of its path; empty: a root, a home, `.` or `..`.
    pub fn name(&self) -> &[u8] {
        base_name(&self.path)
    }
}

/// How much proof a copy needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Compare checksums where both ends can; say so where they cannot.
    #[default]
    WhenPossible,
    /// A copy that cannot be proven is a failure.
    Require,
    /// As [`Verify::Require`], and the destination reads back past its memory, or says that it cannot.
    Disk,
    /// Trust the transfer.
    Never,
}

impl Verify {
    /// Whether a copy without a proof is a failure.
    pub fn is_required(self) -> bool {
        matches!(self, Self::Require | Self::Disk)
    }
}

/// What data connections show that prove who they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DataCredential {
    /// Nonces between ends of our own, else what was handed on at login; one that is made for the session where that does not do.
    #[default]
    Usual,
    /// No certificate (DCAU N): between ends of our own nonces, else whoever connects is believed.
    Nothing,
    /// One that is made for the session (DCSC).
    Made,
    /// This one (DCSC), at each server that takes it.
    Named(CredentialFiles),
}

/// Digests of whole files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    /// The algorithm of the digest that is told of every file.
    pub print: Option<Algorithm>,
    /// What files must be.
    pub expect: Expect,
}

/// Whether large files move in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Chunks {
    /// Where it pays, of a size chosen by the file.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Every file of at least two of them, bytes.
    Size(u64),
}

/// Sources with their destinations.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a run has one")]
pub enum Jobs {
    /// Sources into one destination, as `cp` reads them.
    Into {
        /// What to copy; remote paths may hold wildcards in their last components.
        sources: Vec<Place>,
        /// Where to; a directory when there is more than one source.
        destination: Place,
    },
    /// Pairs, each destination being the copy's own path; they may still be coming.
    Pairs(mpsc::Receiver<Result<(Place, Place), Fault>>),
    /// Files that are found while the copy runs.
    Files(mpsc::Receiver<Result<FoundFile, Fault>>),
}

/// A file with its destination.
#[derive(Debug, Clone)]
pub struct FoundFile {
    /// Where it is.
    pub source: Place,
    /// The copy's own path.
    pub destination: Place,
    /// What it is, where a listing has told: nobody is asked again. A fault: it failed before it could be copied.
    pub found: Result<Option<Object>, Fault>,
    /// What else is demanded of it.
    pub demand: Demand,
}

/// What is demanded of a source beyond the options of the copy; default nothing.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// It must be a directory (`true`) or must not be one (`false`).
    pub recursive: Option<bool>,
    /// What becomes of it where it is a link.
    pub links: Option<Links>,
    /// What the file must be.
    pub expected: Option<Expected>,
    /// It is copied whatever is at the destination.
    pub replace: bool,
}

/// A bound on the bytes per second of a copy, which may change while it runs; default none.
#[derive(Debug, Clone, Default)]
pub struct RateBound {
    /// What does not change.
    own: Option<u64>,
    changing: Option<watch::Receiver<Option<u64>>>,
}

impl RateBound {
    /// One that stays; `None`: none.
    pub fn fixed(most: Option<u64>) -> Self {
        Self { own: most, changing: None }
    }

    /// The lesser of this one and one that changes.
    pub fn and(self, changing: watch::Receiver<Option<u64>>) -> Self {
        Self { changing: Some(changing), ..self }
    }

    /// Bytes per second now; `None`: no bound.
    pub fn now(&self) -> Option<u64> {
        let changing = self.changing.as_ref().and_then(|bound| *bound.borrow());
        [self.own, changing].into_iter().flatten().min()
    }

    /// Waits for the next change; what holds then. Never returns where none will come.
    pub async fn changed(&mut self) -> Option<u64> {
        if let Some(changing) = &mut self.changing
            && changing.changed().await.is_ok()
        {
            return self.now();
        }
        self.changing = None;
        std::future::pending().await
    }
}

/// Everything a copy obeys.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// By way of whom servers exchange data neither of which takes connections, the best one first.
    pub relays: Vec<Target>,
    /// What is copied and when.
    pub plan: PlanOptions,
    /// Only the plan: nothing is written.
    pub dry_run: bool,
    /// Only these bytes: first byte and, if given, number of bytes.
    pub range: Option<(u64, Option<u64>)>,
    /// Files at once.
    pub concurrency: Setting<u32>,
    /// Most sessions where their number is chosen by measurement; default no bound.
    pub most_sessions: Option<u32>,
    /// The endpoints between which files lie that are found while the copy runs: sessions are opened, and the plan is made,
    /// before the first one comes; default not known.
    pub between: Option<Route>,
    /// Most bytes per second of all its files together, as a mean.
    pub rate: RateBound,
    /// Data channels for each file.
    pub parallelism: Setting<u32>,
    /// Small files in flight for each session.
    pub pipeline: Setting<u32>,
    /// Socket buffer of each data channel, bytes, at both ends; `Auto` leaves it to their kernels.
    pub buffer: Setting<u32>,
    /// Proof.
    pub verify: Verify,
    /// Checksum algorithm; `None`: the cheapest both ends share.
    pub checksum: Option<String>,
    /// Digests of whole files.
    pub sums: Sums,
    /// Congestion control of data channels as the user fixed it, at ends that let clients choose; `None`: chosen by
    /// measurement.
    pub congestion: Option<String>,
    /// Tell every choice with its reason.
    pub explain: bool,
    /// Moving large files in parts.
    pub chunks: Chunks,
    /// Use every data node of striped servers (SPAS, SPOR).
    pub stripe: bool,
    /// Copies must survive a crash of the destination's host before they count, where it can promise that: for whoever
    /// deletes sources then. Default: no.
    pub durable: bool,
    /// What is known of the destination's hosts, for whoever runs copies one after the other. Default: nothing.
    pub hosts: Rc<Hosts>,
    /// Encrypt data connections; a pair that cannot is a fault. Default: no.
    pub encrypt: bool,
    /// What data connections show. Default: what belongs to the logins.
    pub data_credential: DataCredential,
    /// Repetition of failed attempts.
    pub retry: RetryPolicy,
    /// Interval of progress events.
    pub progress: Duration,
    /// Control sessions.
    pub session: SessionOptions,
    /// The data side of this host.
    pub local: LocalOptions,
}

impl CopyOptions {
    /// Everything but the plan as it is unless somebody decides otherwise; progress is told once a second.
    pub fn of(plan: PlanOptions) -> Self {
        Self {
            plan,
            dry_run: false,
            range: None,
            concurrency: Setting::Auto,
            most_sessions: None,
            between: None,
            rate: RateBound::default(),
            parallelism: Setting::Auto,
            pipeline: Setting::Auto,
            buffer: Setting::Auto,
            verify: Verify::WhenPossible,
            checksum: None,
            sums: Sums::default(),
            congestion: None,
            explain: false,
            chunks: Chunks::Auto,
            stripe: false,
            durable: false,
            hosts: Rc::default(),
            encrypt: false,
            data_credential: DataCredential::Usual,
            retry: RetryPolicy::default(),
            progress: Duration::from_secs(1),
            session: SessionOptions::default(),
            local: LocalOptions::default(),
            relays: Vec::new(),
        }
    }
}
