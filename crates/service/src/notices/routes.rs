//! Routes of webhooks: everybody's own.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::records::{Event, Webhook};
use super::webhook;
use crate::Service;
use crate::auth::UserCall;
use crate::auth::secrets::{random, random_id};
use crate::clock::iso;
use crate::http::{Answer, ApiError, Created, Done, Json, Route};
use crate::store::{Batch, Record as _};

/// Webhooks of one owner at the most.
const MOST: usize = 10;

/// Longest URL, bytes.
const LONGEST_URL: usize = 1024;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/v2/whimbrel/webhooks", "webhook_list", list),
        Route::post("/v2/whimbrel/webhooks", "webhook_create", create),
        Route::delete("/v2/whimbrel/webhooks/{webhook}", "webhook_delete", delete),
    ]
}

/// A place that is to be told.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct WebhookWish {
    /// `https://HOST/PATH`.
    url: String,
    /// What it is told; without it everything.
    events: Option<Vec<Event>>,
}

/// A webhook as its owner sees it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct WebhookDocument {
    id: Uuid,
    url: String,
    events: Vec<Event>,
    created: String,
    /// What it is shown as a bearer token; told once.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// When it was tried last.
    last_tried: Option<String>,
    /// Why that failed; `null`: it did not.
    last_error: Option<String>,
}

impl WebhookDocument {
    fn of(webhook: Webhook, secret: Option<String>) -> Self {
        let (last_tried, last_error) = webhook.newest.map(|newest| (iso(newest.time), newest.error)).unzip();
        let Webhook { id, url, events, created, .. } = webhook;
        Self { id, url, events, created: iso(created), secret, last_tried, last_error: last_error.flatten() }
    }
}

/// Somebody's webhooks.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct WebhookList {
    webhooks: Vec<WebhookDocument>,
}

async fn list(call: UserCall) -> Result<Answer<WebhookList>, ApiError> {
    let found = call.service.all_by_key::<Webhook>("owner", &call.caller.identity.to_string()).await?;
    let webhooks = found.into_iter().map(|found| WebhookDocument::of(found.record, None)).collect();
    Ok(Answer(WebhookList { webhooks }))
}

async fn create(call: UserCall<Json<WebhookWish>>) -> Result<Created<WebhookDocument>, ApiError> {
    let (service, owner, WebhookWish { url, events }) = (&call.service, call.caller.identity, call.body.0.clone());
    let Some(settings) = service.notifier.settings() else {
        return Err(ApiError::conflict("This service tells nobody of tasks: its administrator has not let it"));
    };
    if url.len() > LONGEST_URL {
        return Err(ApiError::bad_request(format!("`url` is at most {LONGEST_URL} characters long")));
    }
    webhook::client(settings, &url).map_err(|fault| ApiError::bad_request(fault.to_string()))?;
    let events = events.unwrap_or_else(|| Event::ALL.to_vec());
    if events.is_empty() {
        return Err(ApiError::bad_request("`events` are some of succeeded, failed and inactive"));
    }
    if service.all_by_key::<Webhook>("owner", &owner.to_string()).await?.len() >= MOST {
        return Err(ApiError::new(StatusCode::CONFLICT, "LimitExceeded", format!("You have {MOST} webhooks")));
    }
    let (id, secret) = (random_id()?, random("ww_")?);
    let sealed = service.store.seal(Webhook::KIND, &id.to_string(), secret.as_bytes())?;
    let secret_text = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
    let created = service.clock.now();
    let webhook = Webhook { id, owner, url, events, created, secret: secret_text, newest: None };
    let entry = service.entry(owner, "webhook.create", id);
    service.store.apply(Batch::new().insert(&webhook).audit(entry)).await?;
    Ok(Answer(WebhookDocument::of(webhook, Some(secret))))
}

async fn delete(call: UserCall) -> Result<Answer<Done>, ApiError> {
    let id = call.path.id("webhook", "WebhookNotFound")?;
    let found = call.service.store.get::<Webhook>(&id.to_string()).await?;
    let found = found.filter(|webhook| webhook.record.owner == call.caller.identity);
    let found = found.ok_or_else(|| ApiError::not_found("WebhookNotFound", format!("You have no webhook {id}")))?;
    let entry = call.service.entry(call.caller.identity, "webhook.delete", id);
    call.service.store.apply(Batch::new().delete(&found).audit(entry)).await?;
    Ok(Answer(Done::new(&call.place, "Deleted", "The webhook is told nothing any more")))
}

impl Service {
    /// What a webhook is shown.
    pub(super) fn webhook_secret(&self, webhook: &Webhook) -> Result<String, ApiError> {
        let pairs = webhook.secret.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
        let sealed: Result<Vec<u8>, _> = pairs.map(|pair| u8::from_str_radix(pair, 16)).collect();
        let sealed = sealed.map_err(ApiError::internal)?;
        let secret = self.store.unseal(Webhook::KIND, &webhook.id.to_string(), &sealed)?;
        String::from_utf8(secret.to_vec()).map_err(ApiError::internal)
    }
}
