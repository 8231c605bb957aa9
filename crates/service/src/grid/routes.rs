//! Routes with which users register proxies: a request is given out, and its answer taken. No private key is in either.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use uuid::Uuid;
use whimbrel_engine::FaultCode;
use whimbrel_engine::listing::Timestamp;
use whimbrel_trust::TrustFault;
use whimbrel_trust::gsi::deposit;
use zeroize::Zeroizing;

use super::records::whose;
use super::{CredentialRequest, GridCredential, Logins};
use crate::Service;
use crate::auth::UserCall;
use crate::auth::secrets::random_id;
use crate::clock::iso;
use crate::endpoints::records::Collection;
use crate::http::{Answer, ApiError, Done, Json, Route};
use crate::store::{Batch, Record as _, StoreError};

/// Seconds for which an answer to a request is awaited.
const AWAITED: i64 = 600;

/// Longest life of a credential that is kept, seconds: a week, and an hour for clocks that differ.
const LONGEST: i64 = 7 * 24 * 3600 + 3600;

/// Longest answer, bytes of JSON.
const MOST: usize = 2 * deposit::MOST_BYTES;

/// Keys that are made at once: each takes a tenth of a second of a processor.
static MAKING: Semaphore = Semaphore::const_new(2);

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/v2/whimbrel/endpoints/{id}/credential", "credential_show", show),
        Route::post("/v2/whimbrel/endpoints/{id}/credential/request", "credential_request", request),
        Route::put("/v2/whimbrel/endpoints/{id}/credential", "credential_register", register),
        Route::delete("/v2/whimbrel/endpoints/{id}/credential", "credential_delete", delete),
    ]
}

/// What is told of a credential: never a key.
#[derive(Debug, Serialize, JsonSchema)]
struct CredentialDocument {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    /// The endpoint that it is for: all collections on it.
    endpoint_id: Uuid,
    /// Whom it speaks for at the servers.
    subject: String,
    /// What it is, for people.
    kind: String,
    /// Since when it is here.
    registered_time: String,
    /// Its end.
    expire_time: String,
    /// Seconds until then; 0: it has ended.
    expires_in: i64,
}

impl CredentialDocument {
    fn new(of: GridCredential, now: Timestamp) -> Self {
        Self {
            data_type: "grid_credential",
            endpoint_id: of.endpoint,
            subject: of.subject,
            kind: of.kind,
            registered_time: iso(of.registered),
            expire_time: iso(of.until),
            expires_in: (of.until.secs - now.secs).max(0),
        }
    }
}

/// What the user is asked to sign.
#[derive(Debug, Serialize, JsonSchema)]
struct RequestDocument {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    endpoint_id: Uuid,
    /// PKCS#10, PEM; its subject is of no account.
    request: String,
    /// Until when an answer is awaited.
    expire_time: String,
    /// Longest life that the proxy may have, seconds.
    longest_life: i64,
}

/// The answer.
#[derive(Debug, Deserialize, JsonSchema)]
struct ProxyAnswer {
    /// The proxy and the certificates above it, PEM, nearest first; without a private key.
    chain: String,
}

/// The endpoint of the path, or that of the collection of the path.
async fn place<I>(call: &UserCall<I>) -> Result<Collection, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    let (found, _) = call.service.visible(&call.caller, id).await?;
    Ok(found.record)
}

async fn show(call: UserCall) -> Result<Answer<CredentialDocument>, ApiError> {
    let place = place(&call).await?;
    let found = call.service.grid_credential(place.endpoint, call.caller.identity).await?;
    let found = found.ok_or_else(|| none(&place))?.record;
    Ok(Answer(CredentialDocument::new(found, call.service.clock.now())))
}

async fn delete(call: UserCall) -> Result<Answer<Done>, ApiError> {
    let (place, service) = (place(&call).await?, &call.service);
    let found = service.grid_credential(place.endpoint, call.caller.identity).await?.ok_or_else(|| none(&place))?;
    let entry = service.entry(call.caller.identity, "grid_credential.delete", place.endpoint);
    service.store.apply(Batch::new().delete(&found).audit(entry)).await?;
    service.desk.ring();
    Ok(Answer(Done::new(&call.place, "Deleted", "The credential was deleted; tasks that need one wait for another")))
}

async fn request(call: UserCall) -> Result<Answer<RequestDocument>, ApiError> {
    let (place, service) = (place(&call).await?, &call.service);
    wants_proxies(service, &place).await?;
    let (waiting, key) = service.awaited(place.endpoint, call.caller.identity).await?;
    let request = deposit::request(&key).map_err(ApiError::internal)?;
    Ok(Answer(RequestDocument {
        data_type: "grid_credential_request",
        endpoint_id: place.endpoint,
        request,
        expire_time: iso(waiting.until),
        longest_life: LONGEST,
    }))
}

async fn register(call: UserCall<Json<ProxyAnswer, MOST>>) -> Result<Answer<CredentialDocument>, ApiError> {
    let (place, service, identity) = (place(&call).await?, &call.service, call.caller.identity);
    wants_proxies(service, &place).await?;
    let (id, now) = (whose(place.endpoint, identity), service.clock.now());
    let waiting = service.store.get::<CredentialRequest>(&id).await?.filter(|waiting| waiting.record.until >= now);
    let waiting = waiting.ok_or_else(|| ApiError::conflict("No answer is awaited, or not any more: ask again"))?;
    let key = service.store.unseal(CredentialRequest::KIND, &id, &waiting.record.sealed)?;
    let taken = deposit::take_at(&call.body.0.chain, &key, now.secs).map_err(refused)?;
    let until = Timestamp::from_secs(taken.holder.until.secs);
    if until.secs - now.secs > LONGEST {
        return Err(ApiError::bad_request("The proxy is good for longer than a week: make one that ends earlier"));
    }
    let made = GridCredential {
        endpoint: place.endpoint,
        identity,
        serial: random_id()?,
        subject: taken.holder.identity,
        kind: taken.holder.kind.to_owned(),
        registered: now,
        until,
        sealed: service.store.seal(GridCredential::KIND, &id, taken.pem.as_bytes())?,
    };
    let mut entry = service.entry(identity, "grid_credential.register", place.endpoint);
    entry.detail = json!({"subject": made.subject, "until": iso(until)});
    let batch = Batch::new().delete(&waiting).audit(entry);
    let batch = match service.grid_credential(place.endpoint, identity).await? {
        Some(mut known) => {
            known.record = made.clone();
            batch.update(&known)
        }
        None => batch.insert(&made),
    };
    service.store.apply(batch).await?;
    // Those that it misses, for this process may die here, are looked for once a minute.
    service.heed_credentials(Some(identity)).await?;
    service.desk.ring();
    Ok(Answer(CredentialDocument::new(made, now)))
}

impl Service {
    /// The key for which somebody is asked to sign; the same for a while, so that asking again costs nothing.
    async fn awaited(
        &self,
        endpoint: Uuid,
        identity: Uuid,
    ) -> Result<(CredentialRequest, Zeroizing<Vec<u8>>), ApiError> {
        let (id, now) = (whose(endpoint, identity), self.clock.now());
        let known = self.store.get::<CredentialRequest>(&id).await?;
        if let Some(known) = known.as_ref().filter(|known| known.record.until.secs - now.secs > AWAITED / 2) {
            let key = self.store.unseal(CredentialRequest::KIND, &id, &known.record.sealed)?;
            return Ok((known.record.clone(), key));
        }
        let turn = MAKING.acquire().await.map_err(ApiError::internal)?;
        let key = spawn_blocking(deposit::new_key).await.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
        drop(turn);
        let until = Timestamp::from_secs(now.secs + AWAITED);
        let sealed = self.store.seal(CredentialRequest::KIND, &id, &key)?;
        let made = CredentialRequest { endpoint, identity, until, sealed };
        let batch = match known {
            Some(mut known) => {
                known.record = made.clone();
                Batch::new().update(&known)
            }
            None => Batch::new().insert(&made),
        };
        match self.store.apply(batch).await {
            Ok(()) => Ok((made, key)),
            Err(StoreError::Conflict(_)) => Err(ApiError::conflict("You are asking twice at once: ask again")),
            Err(error) => Err(error.into()),
        }
    }
}

/// Refuses where no proxy would be shown.
async fn wants_proxies(service: &Service, place: &Collection) -> Result<(), ApiError> {
    let location = service.location(place).await?;
    super::refuse_guests(place, &location).map_err(|fault| ApiError::conflict(fault.to_string()))?;
    let name = &place.about.display_name;
    match service.logins_at(location.endpoint, &location.servers).await? {
        Some(Logins::Proxy) => Ok(()),
        Some(_) => {
            Err(ApiError::conflict(format!("The servers of {name} ask for no proxy: nothing is to be registered")))
        }
        None => Err(ApiError::conflict(format!("{name} has no servers yet"))),
    }
}

fn none(place: &Collection) -> ApiError {
    let message =
        format!("You have registered no proxy for {}; to do so: {}", place.about.display_name, super::cure(place));
    ApiError::not_found("CredentialNotFound", message)
}

/// What is wrong with an answer.
fn refused(fault: TrustFault) -> ApiError {
    match fault.code {
        FaultCode::Internal => ApiError::internal(fault.detail),
        _ if fault.subject.is_empty() => ApiError::bad_request(format!("The proxy is not taken: {}", fault.detail)),
        _ => ApiError::bad_request(format!("The proxy is not taken: {}: {}", fault.subject, fault.detail)),
    }
}
