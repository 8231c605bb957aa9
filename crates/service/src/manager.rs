//! The manager of an endpoint's collections, as Globus Connect Server has one at each endpoint (its API, version 1).
//!
//! Clients talk to a server of the endpoint; it passes on what they ask and their token, with its own secret. What is a secret of a
//! user's storage never comes here: servers refuse or keep it.

mod collections;
mod credentials;
mod document;
mod endpoint;
mod roles;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::Service;
use crate::auth::Actor;
use crate::auth::scope::manage_collections;
use crate::auth::secrets::id_bytes;
use crate::endpoints::records::{Collection, EntityType, RoleName};
use crate::http::ApiError;
use crate::store::Versioned;

pub use credentials::UserCredential;

/// What a client asks of a server's manager.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ManageWish {
    /// Its access token.
    token: Option<String>,
    /// GET, POST, PATCH, PUT or DELETE.
    method: String,
    /// Behind `/api`.
    path: String,
    #[serde(default)]
    query: BTreeMap<String, String>,
    #[serde(default)]
    body: Value,
}

/// Somebody who manages collections of an endpoint.
pub(crate) struct Manager<'a> {
    service: &'a Service,
    actor: Arc<Actor>,
    endpoint: Versioned<Collection>,
    query: BTreeMap<String, String>,
}

impl Service {
    /// Does what somebody asks of the manager of an endpoint: the document that answers.
    ///
    /// # Errors
    /// What they may not do, or what is wrong with it.
    pub(crate) async fn manage(&self, endpoint: Uuid, wish: ManageWish) -> Result<Value, ApiError> {
        let unknown = || ApiError::unauthenticated("The access token is unknown, revoked or has expired");
        let token = wish.token.as_deref().ok_or_else(unknown)?;
        let actor = self.actor(token).await?.ok_or_else(unknown)?;
        let scope = manage_collections(endpoint);
        if actor.orchestrator || !actor.has(&scope) {
            let error = ApiError::denied(format!("The access token is not for {scope}"));
            let detail = json!({"DATA_TYPE": "missing_required_scopes#1.0.0", "missing_scopes": [scope]});
            return Err(error.with("detail", detail));
        }
        let endpoint = self.collection(endpoint).await?;
        let manager = Manager { service: self, actor, endpoint, query: wish.query };
        manager.route(&wish.method, &wish.path, wish.body).await
    }
}

impl Manager<'_> {
    async fn route(&self, method: &str, path: &str, body: Value) -> Result<Value, ApiError> {
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        match (method, parts.as_slice()) {
            ("GET", ["endpoint"]) => self.show_endpoint().await,
            ("PATCH" | "PUT", ["endpoint"]) => self.update_endpoint(read(body)?).await,
            ("PUT", ["endpoint", "subscription_id"]) => self.set_subscription(read(body)?).await,
            ("GET", ["collections"]) => self.list_collections().await,
            ("POST", ["collections"]) => self.create_collection(body).await,
            ("GET", ["collections", id]) => self.show_collection(id).await,
            ("PATCH" | "PUT", ["collections", id]) => self.update_collection(id, body).await,
            ("DELETE", ["collections", id]) => self.delete_collection(id).await,
            ("GET", ["storage_gateways"]) => Ok(document::success(vec![self.gateway()])),
            ("GET", ["storage_gateways", id]) if *id == self.gateway_id().to_string() => {
                Ok(document::success(vec![self.gateway()]))
            }
            ("GET", ["storage_gateways", _]) => Err(missing("storage gateway")),
            (_, ["storage_gateways", ..]) => Err(unprocessable(
                "The storage of this endpoint is what its servers' own configuration says: there is one gateway, and it stays",
            )),
            ("GET", ["user_credentials"]) => self.list_credentials().await,
            ("POST", ["user_credentials"]) => self.create_credential(read(body)?).await,
            ("GET", ["user_credentials", id]) => self.show_credential(id).await,
            ("PATCH" | "PUT", ["user_credentials", id]) => self.update_credential(id, read(body)?).await,
            ("DELETE", ["user_credentials", id]) => self.delete_credential(id).await,
            ("GET", ["roles"]) => self.list_roles().await,
            ("POST", ["roles"]) => self.create_role(read(body)?).await,
            ("GET", ["roles", id]) => self.show_role(id).await,
            ("DELETE", ["roles", id]) => self.delete_role(id).await,
            _ => Err(ApiError::not_found("not_found", format!("The manager has nothing for {method} {path}"))),
        }
    }

    /// The endpoint, if the caller may do there what a role allows.
    async fn endpoint_as(&self, role: RoleName) -> Result<Versioned<Collection>, ApiError> {
        let standing = self.service.standing(&self.actor, &self.endpoint.record).await?;
        match standing.may_as(role) {
            true => Ok(self.endpoint.clone()),
            false => Err(needs_role(role)),
        }
    }

    /// A collection of this endpoint that the caller may know of.
    async fn own(&self, id: &str) -> Result<Versioned<Collection>, ApiError> {
        let id = Uuid::try_parse(id).map_err(|_| missing("collection"))?;
        let (found, _) = self.service.visible(&self.actor, id).await.map_err(hidden)?;
        let here = found.record.endpoint == self.endpoint.record.id && found.record.kind != EntityType::Endpoint;
        if here { Ok(found) } else { Err(missing("collection")) }
    }

    /// The same, if the caller may do there what a role allows.
    async fn own_as(&self, id: &str, role: RoleName) -> Result<Versioned<Collection>, ApiError> {
        let found = self.own(id).await?;
        let standing = self.service.standing(&self.actor, &found.record).await?;
        if standing.may_as(role) { Ok(found) } else { Err(needs_role(role)) }
    }

    /// The one storage of the endpoint: its number follows from the endpoint's.
    fn gateway_id(&self) -> Uuid {
        gateway_of(self.endpoint.record.id)
    }

    fn gateway(&self) -> Value {
        document::gateway(self.gateway_id(), &self.endpoint.record)
    }

    /// Takes a storage gateway that somebody names.
    fn check_gateway(&self, named: Option<Uuid>) -> Result<(), ApiError> {
        match named {
            Some(id) if id != self.gateway_id() => {
                Err(unprocessable(format!("The endpoint has no storage gateway {id}")))
            }
            _ => Ok(()),
        }
    }
}

/// The storage gateway of an endpoint.
fn gateway_of(endpoint: Uuid) -> Uuid {
    derived("storage gateway", &[endpoint])
}

/// A number that follows from others (RFC 9562 §5.8).
fn derived(what: &str, from: &[Uuid]) -> Uuid {
    let parts = std::iter::once(what.as_bytes()).chain(from.iter().map(|id| &id.as_bytes()[..]));
    uuid::Builder::from_custom_bytes(id_bytes(parts)).into_uuid()
}

fn read<T: DeserializeOwned>(body: Value) -> Result<T, ApiError> {
    serde_json::from_value(body)
        .map_err(|error| unprocessable(format!("The document is not what is needed here: {error}")))
}

/// 422: it is understood, and cannot be.
fn unprocessable(message: impl Into<String>) -> ApiError {
    ApiError::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, "unprocessable_entity", message)
}

fn missing(what: &str) -> ApiError {
    ApiError::not_found("not_found", format!("The endpoint has no such {what}"))
}

/// What is hidden is not there.
fn hidden(error: ApiError) -> ApiError {
    if error.status == axum::http::StatusCode::NOT_FOUND { missing("collection") } else { error }
}

fn needs_role(role: RoleName) -> ApiError {
    let error = ApiError::denied(format!("You need the role {} for that", role.name()));
    error.with("detail", json!({"DATA_TYPE": "missing_required_role#1.0.0", "role": role.name()}))
}
