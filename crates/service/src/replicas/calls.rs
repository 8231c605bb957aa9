//! What replicas ask each other.

use std::time::Duration;

use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;
use whimbrel_engine::dispatch::waiting::PROTOCOL;
use whimbrel_engine::dispatch::{OperationKind, Site};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_web::Line;
use whimbrel_web::client::{Method, Question};

use super::{Fellow, OP, Own, Replica};
use crate::Service;
use crate::desk::OPERATION_LIMIT;
use crate::desk::operations::Answer;
use crate::http::{self, ApiError, Call, Json};

/// Time for another replica to hand on a connection: more than a server has to answer there.
const LIMIT: Duration = Duration::from_secs(8);

/// Time beyond an operation's own for its way there and back.
const GRACE: Duration = Duration::from_secs(5);

/// Between two rounds of questions while a server makes no connection.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest operation, and longest answer to one, bytes.
const LONGEST: usize = 256 << 20;

/// An operation that another replica is to have done.
#[derive(Debug, Serialize, Deserialize)]
struct Errand {
    site: Site,
    kind: OperationKind,
}

/// What an orchestrator says of an operation, and to whom it may belong.
#[derive(Debug, Serialize, Deserialize)]
struct Answered {
    operation: Uuid,
    answer: Answer,
}

fn read<T: DeserializeOwned>(document: Value) -> Result<T, ApiError> {
    serde_json::from_value(document).map_err(|error| ApiError::bad_request(format!("Not from a replica: {error}")))
}

/// `POST /v2/whimbrel/replicas/operations`: 503 where no orchestrator asks for work.
pub(super) async fn operate(call: Call<Fellow, Json<Value, LONGEST>>) -> Result<http::Answer<Value>, ApiError> {
    let Errand { site, kind } = read(call.body.0)?;
    if !call.service.desk.is_asked() {
        return Err(ApiError::unavailable("No orchestrator asks this replica for work"));
    }
    let answer: Answer = call.service.desk.operate(site, kind).await;
    serde_json::to_value(answer).map(http::Answer).map_err(ApiError::internal)
}

/// `POST /v2/whimbrel/replicas/answers`: an answer that reached another replica than the one where it is waited for.
pub(super) async fn answer(call: Call<Fellow, Json<Value, LONGEST>>) -> Result<http::Answer<Value>, ApiError> {
    let Answered { operation, answer } = read(call.body.0)?;
    // It may be waited for at a third one, or nowhere any more.
    let _foreign = call.service.desk.answered(operation, answer);
    Ok(http::Answer(Value::Null))
}

impl Service {
    /// Has a single operation done by an orchestrator: one that asks here for work, else one that asks another replica.
    ///
    /// # Errors
    /// What the server said, or that nobody did it in time.
    pub async fn operate(&self, site: Site, kind: OperationKind) -> Answer {
        let mut errand = Errand { site, kind };
        if !self.desk.is_asked() {
            match self.operate_elsewhere(errand).await {
                Ok(answer) => return answer,
                Err(back) => errand = back,
            }
        }
        self.desk.operate(errand.site, errand.kind).await
    }

    /// Gives the errand back if there is no other replica that could have it done.
    async fn operate_elsewhere(&self, errand: Errand) -> Result<Answer, Errand> {
        let (own, others) = match self.fellows().await {
            Ok(Some((own, others))) if !others.is_empty() => (own, others),
            Ok(_) => return Err(errand),
            Err(error) => {
                tracing::warn!("other replicas are not asked to have something done: {error}");
                return Err(errand);
            }
        };
        let Ok(document) = serde_json::to_vec(&errand) else { return Err(errand) };
        for other in others {
            match other.post(own, "operations", &document, OPERATION_LIMIT + GRACE).await {
                Ok(Some(said)) => {
                    return Ok(serde_json::from_value(said).unwrap_or_else(|error| Err(odd(&other, error))));
                }
                Ok(None) => {}
                Err(fault) if was_not_reached(&fault) => tracing::debug!(%fault, "a replica is not reached"),
                // Whether it was done is not known: who asked decides.
                Err(fault) => return Ok(Err(fault)),
            }
        }
        Err(errand)
    }

    /// Tells the other replicas an orchestrator's answer, which nobody waits for here.
    pub(crate) async fn pass_on(&self, operation: Uuid, answer: Answer) {
        let told = async {
            let Some((own, others)) = self.fellows().await? else { return Ok(()) };
            let answered = Answered { operation, answer };
            let document = serde_json::to_vec(&answered).map_err(ApiError::internal)?;
            for other in others {
                if let Err(fault) = other.post(own, "answers", &document, LIMIT).await {
                    tracing::debug!(%fault, "a replica is not told an answer");
                }
            }
            Ok::<_, ApiError>(())
        };
        if let Err(error) = told.await {
            tracing::warn!("other replicas are not told an answer: {error}");
        }
    }

    /// A connection that a server has left with another replica; never, if it leaves none.
    pub(crate) async fn meet_elsewhere(&self, server: Uuid) -> Line {
        loop {
            match self.lent(server).await {
                Ok(Some(line)) => return line,
                Ok(None) => {}
                Err(error) => tracing::warn!("other replicas are not asked for a connection: {error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks all the others at once.
    async fn lent(&self, server: Uuid) -> Result<Option<Line>, ApiError> {
        let Some((own, others)) = self.fellows().await? else { return std::future::pending().await };
        let mut asked = JoinSet::new();
        for other in others {
            let secret = own.secret.clone();
            asked.spawn(async move { other.lend(&secret, server).await });
        }
        while let Some(answer) = asked.join_next().await {
            match answer {
                // A connection that a second one gives is not taken: its server makes another.
                Ok(Ok(Some(line))) => return Ok(Some(line)),
                Ok(Ok(None)) => {}
                Ok(Err(fault)) => tracing::debug!(%fault, "a replica is not reached"),
                Err(error) => return Err(ApiError::internal(error)),
            }
        }
        Ok(None)
    }
}

impl Replica {
    /// `None`: no connection of the server waits there.
    async fn lend(&self, secret: &str, server: Uuid) -> Result<Option<Line>, Fault> {
        let path = format!("/v2/whimbrel/replicas/servers/{server}");
        let client = self.client()?;
        let late = |_| Fault::new(FaultCode::TimedOut, OP).subject(&self.url).side(Side::Service);
        let answer = timeout(LIMIT, client.upgrade(&path, Some(secret), PROTOCOL)).await.map_err(late)??;
        Ok(answer.ok())
    }

    /// What it says; `None`: it cannot do that now, and has not.
    async fn post(&self, own: &Own, what: &str, document: &[u8], limit: Duration) -> Result<Option<Value>, Fault> {
        let path = format!("/v2/whimbrel/replicas/{what}");
        let (method, bearer, body) = (Method::POST, Some(own.secret.as_str()), Some(document.to_vec()));
        let answer = self.client()?.ask(Question { method, path: &path, bearer, body, limit }).await?;
        match answer.status {
            StatusCode::OK => serde_json::from_slice(&answer.body).map(Some).map_err(|error| odd(self, error)),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::UNAUTHORIZED => Ok(None),
            status => Err(odd(self, status)),
        }
    }
}

fn odd(other: &Replica, what: impl std::fmt::Display) -> Fault {
    Fault::new(FaultCode::PeerMisbehaved, OP).subject(&other.url).side(Side::Service).detail(what.to_string())
}

/// Nothing was said to it.
fn was_not_reached(fault: &Fault) -> bool {
    use FaultCode::{ConnectionRefused, HostUnreachable, PeerIdentity};
    matches!(fault.code, ConnectionRefused | HostUnreachable | PeerIdentity)
}
