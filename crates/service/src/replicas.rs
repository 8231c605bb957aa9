//! Several of this service over one store: how they reach each other, for what is no record.
//!
//! That is what belongs to one process because somebody waits there: connections of servers that take none, operations that wait for an
//! orchestrator, and their answers.

mod calls;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::pins::{Fingerprint, KeyJudge};
use whimbrel_trust::tls::ClientTls;
use whimbrel_web::client::Client;

use crate::Service;
use crate::auth::rules::bearer_text;
use crate::auth::secrets::{digest, random, random_id};
use crate::http::{Access, ApiError, Knock, Route, Rule};
use crate::store::{Batch, Record, StoreError, Versioned};

const OP: &str = "ask another replica";

/// Between two signs of life.
const INTERVAL: Duration = Duration::from_secs(10);

/// Seconds after which a silent replica is not asked any more: three signs of life missed.
const SILENCE: i64 = 35;

/// Seconds after which one is forgotten.
const FORGOTTEN: i64 = 24 * 3600;

/// Longest answer, bytes: a listing, written in JSON's longest way.
const MOST_ANSWER: usize = 256 << 20;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::post("/v2/whimbrel/replicas/operations", "replica_operate", calls::operate),
        Route::post("/v2/whimbrel/replicas/answers", "replica_answer", calls::answer),
    ]
}

/// A replica, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Another one each time it is started.
    id: Uuid,
    /// Where the others reach it.
    pub(crate) url: String,
    /// The fingerprint of its certificate's key: who writes to the store is believed, whoever vouches for the certificate.
    pin: String,
    /// SHA-256 of what proves that it is this replica.
    secret: String,
    /// When it last gave a sign of life.
    pub(crate) seen: Timestamp,
}

impl Record for Replica {
    const KIND: &'static str = "replica";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("secret", self.secret.clone())]
    }
}

impl Replica {
    /// Whether it has given a sign of life of late.
    pub(crate) fn is_there(&self, now: Timestamp) -> bool {
        now.secs - self.seen.secs <= SILENCE
    }

    fn client(&self) -> Result<Client, Fault> {
        let damaged =
            || Fault::new(FaultCode::Internal, OP).subject(&self.url).side(Side::Us).detail("its pin is none");
        let pin = Fingerprint::parse(&self.pin).ok_or_else(damaged)?;
        let judge = Arc::new(KeyJudge::new(vec![pin], &self.url));
        let tls = ClientTls::new(judge, None).map_err(|fault| fault.into_fault(OP, Side::Us))?;
        Client::new(&self.url, tls, MOST_ANSWER)
    }
}

/// What this process is among replicas. It cannot be printed, for it has the secret.
#[derive(Clone)]
struct Own {
    id: Uuid,
    url: String,
    pin: String,
    secret: String,
}

/// The replicas of this service; without [`Replicas::begin`] it is the only one.
#[derive(Default)]
pub struct Replicas(OnceLock<Own>);

impl Replicas {
    /// Makes this process one of several, that the others reach at `url`, whose certificate's key has this fingerprint. The first word counts.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn begin(&self, url: &str, pin: Fingerprint) -> Result<(), ApiError> {
        let (id, url) = (random_id()?, url.trim_end_matches('/').to_owned());
        let own = Own { id, url, pin: pin.to_string(), secret: random("wr_")? };
        // What was said first stays.
        let _first = self.0.set(own);
        Ok(())
    }
}

/// Another replica of this service.
#[derive(Debug)]
pub struct Fellow;

impl Rule for Fellow {
    type Caller = ();
    const ACCESS: Access = Access::Replica;

    async fn admit(service: &Service, knock: &Knock) -> Result<(), ApiError> {
        let unknown = || ApiError::unauthenticated("That is no replica of this service");
        let text = bearer_text(&knock.headers).ok_or_else(unknown)?;
        let found = service.store.find::<Replica>("secret", &digest(text), None, 1).await?.pop();
        found.filter(|found| found.record.is_there(service.clock.now())).map(drop).ok_or_else(unknown)
    }
}

impl Service {
    /// Gives signs of life to the other replicas, until `stop` is `true` or its sender gone.
    pub async fn attend(&self, mut stop: watch::Receiver<bool>) {
        let Some(own) = self.replicas.0.get() else { return };
        loop {
            if let Err(error) = self.give_sign(own).await {
                tracing::warn!("other replicas do not learn that this one is there: {error}");
            }
            if timeout(INTERVAL, stop.wait_for(|stop| *stop)).await.is_ok() {
                break;
            }
        }
        // Who is not told finds out.
        let _told = self.store.apply(Batch::new().delete_id::<Replica>(own.id.to_string())).await;
    }

    async fn give_sign(&self, own: &Own) -> Result<(), ApiError> {
        let seen = self.clock.now();
        let Own { id, url, pin, .. } = own.clone();
        let record = Replica { id, url, pin, secret: digest(&own.secret), seen };
        let mut batch = match self.store.get::<Replica>(&record.id()).await? {
            Some(found) => Batch::new().update(&Versioned { record, version: found.version }),
            None => Batch::new().insert(&record),
        };
        let is_old = |other: &Replica| seen.secs - other.seen.secs > FORGOTTEN;
        for old in self.all_replicas().await?.iter().filter(|other| other.id != own.id && is_old(other)) {
            batch = batch.delete_id::<Replica>(old.id());
        }
        match self.store.apply(batch).await {
            // Somebody else has forgotten the same one; the next sign is soon.
            Ok(()) | Err(StoreError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// All that were there lately, this process included.
    pub(crate) async fn all_replicas(&self) -> Result<Vec<Replica>, ApiError> {
        Ok(self.all::<Replica>().await?.into_iter().map(|found| found.record).collect())
    }

    /// This process among its replicas, and the others that are there; none without [`Replicas::begin`].
    async fn fellows(&self) -> Result<Option<(&Own, Vec<Replica>)>, ApiError> {
        let Some(own) = self.replicas.0.get() else { return Ok(None) };
        let now = self.clock.now();
        let mut others = self.all_replicas().await?;
        others.retain(|other| other.id != own.id && other.is_there(now));
        Ok(Some((own, others)))
    }
}
