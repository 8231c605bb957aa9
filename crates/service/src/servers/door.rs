//! What servers ask about requests that come to them over HTTPS: the rights are known here, the files are there.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::Credential;
use whimbrel_engine::task::{inside, normal};

use super::{Joined, itself};
use crate::Service;
use crate::auth::scope::{data_access, https};
use crate::endpoints::Want;
use crate::endpoints::records::EntityType;
use crate::http::{Answer, ApiError, Call, Json};
use crate::manager::ManageWish;
use crate::reach::Usable;

/// What somebody wants of a file at the server that asks.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AccessWish {
    /// Their access token; without one they are anybody.
    token: Option<String>,
    /// The collection.
    collection: Uuid,
    /// A path of the collection.
    path: String,
    /// Not only to read it.
    write: bool,
}

/// `POST /v2/whimbrel/servers/{server}/access`. A refusal of the user is a good answer to the server: its own refusals have a status.
pub(super) async fn access(call: Call<Joined, Json<AccessWish>>) -> Result<Answer<Value>, ApiError> {
    itself(&call)?;
    match call.service.door(call.caller.record.endpoint, call.body.0).await {
        Ok(granted) => Ok(Answer(json!({"granted": granted}))),
        Err(error) if error.status.is_server_error() => Err(error),
        Err(error) => Ok(Answer(json!({"refused": refusal(&error)}))),
    }
}

/// `POST /v2/whimbrel/servers/{server}/manage`.
pub(super) async fn manage(call: Call<Joined, Json<ManageWish>>) -> Result<Answer<Value>, ApiError> {
    itself(&call)?;
    match call.service.manage(call.caller.record.endpoint, call.body.0).await {
        Ok(document) => Ok(Answer(json!({"granted": document}))),
        Err(error) if error.status.is_server_error() => Err(error),
        Err(error) => Ok(Answer(json!({"refused": refusal(&error)}))),
    }
}

/// An error of a user, for the server to pass on.
fn refusal(error: &ApiError) -> Value {
    let mut document = json!({"status": error.status.as_u16(), "code": error.code, "message": error.message});
    for (field, value) in &error.more {
        document[field] = value.clone();
    }
    document
}

impl Service {
    /// With what the servers of an endpoint let somebody do what they want.
    async fn door(&self, endpoint: Uuid, wish: AccessWish) -> Result<Value, ApiError> {
        let want = if wish.write { Want::Write } else { Want::Read };
        let (usable, identity) = match &wish.token {
            Some(token) => self.by_token(token, wish.collection).await?,
            None => (self.usable_by_anybody(wish.collection).await?, None),
        };
        // Another endpoint's collections are not this server's business.
        if usable.collection.endpoint != endpoint {
            return Err(ApiError::no_endpoint(wish.collection));
        }
        let path = normal(&wish.path, &usable.ground.default_directory);
        let path = path.map_err(|error| ApiError::bad_request(format!("{:?}: {error}", wish.path)))?;
        if usable.collection.policy.no_https {
            return Err(ApiError::denied("The files of this collection are not had over HTTPS"));
        }
        usable.permit(&path, want).map_err(|error| match &wish.token {
            Some(_) => error,
            None => ApiError::unauthenticated("Who does not log in may not do that"),
        })?;
        let site = self.site(&usable, identity.unwrap_or_default(), None, want).await;
        let site = site.map_err(|fault| ApiError::unavailable(fault.to_string()))?;
        let Credential::Token { token } = site.credential else {
            return Err(ApiError::new(StatusCode::CONFLICT, "NotSupported", "The collection takes no tokens"));
        };
        let there = inside(&usable.ground.base, &path);
        Ok(json!({"path": there, "token": token, "account": site.local_user}))
    }

    async fn by_token(&self, token: &str, collection: Uuid) -> Result<(Usable, Option<Uuid>), ApiError> {
        let unknown = || ApiError::unauthenticated("The access token is unknown, revoked or has expired");
        let actor = self.actor(token).await?.ok_or_else(unknown)?;
        if actor.orchestrator || !actor.has(&https(collection)) {
            return Err(ApiError::denied(format!("The access token is not for {}", https(collection))));
        }
        let usable = self.usable(collection, &actor).await?;
        let asks = usable.collection.kind == EntityType::Mapped && usable.collection.policy.data_access;
        if asks && !actor.has(&data_access(collection)) {
            return Err(ApiError::consent_required("Missing required data_access consent", &[data_access(collection)]));
        }
        Ok((usable, Some(actor.identity)))
    }
}
