//! Roles: who else may manage a collection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::access::principal_texts;
use super::manage::{administered, given_away};
use super::records::{Principal, RoleGiven, RoleName};
use crate::auth::ByUser;
use crate::auth::secrets::random_id;
use crate::http::{Answer, ApiError, Call, Created, Done, Json};
use crate::store::{Batch, Versioned};

/// Roles of one collection at the most.
const MOST: usize = 1000;

/// A role as it is told.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct RoleDocument {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    id: Uuid,
    principal_type: &'static str,
    principal: String,
    role: RoleName,
}

impl From<RoleGiven> for RoleDocument {
    fn from(given: RoleGiven) -> Self {
        let (principal_type, principal) = principal_texts(given.principal);
        Self { data_type: "role", id: given.id, principal_type, principal, role: given.role }
    }
}

/// Roles of a collection.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct RoleList {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    length: usize,
    #[serde(rename = "DATA")]
    data: Vec<RoleDocument>,
}

/// `GET /endpoint/{id}/role_list`: its owner first.
pub(super) async fn list(call: Call<ByUser>) -> Result<Answer<RoleList>, ApiError> {
    let collection = administered(&call).await?.record;
    // The owner's role was given with the collection, and has its id.
    let owner = Principal::Identity(collection.owner);
    let owner =
        RoleGiven { id: collection.id, collection: collection.id, principal: owner, role: RoleName::Administrator };
    let given = call.service.all_by_key::<RoleGiven>("collection", &collection.id.to_string()).await?;
    let data: Vec<_> =
        std::iter::once(owner).chain(given.into_iter().map(|found| found.record)).map(RoleDocument::from).collect();
    Ok(Answer(RoleList { data_type: "role_list", length: data.len(), data }))
}

/// A role that is to be given.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct RoleWish {
    principal_type: String,
    principal: String,
    role: RoleName,
}

/// `POST /endpoint/{id}/role`.
pub(super) async fn create(call: Call<ByUser, Json<RoleWish>>) -> Result<Created<RoleDocument>, ApiError> {
    let found = given_away(&call, RoleName::Administrator).await?;
    let (service, wish) = (&call.service, &call.body.0);
    let principal = service.principal(&wish.principal_type, &wish.principal).await?;
    if !matches!(principal, Principal::Identity(_) | Principal::Group(_)) {
        return Err(ApiError::bad_request("Roles are given to identities and groups only"));
    }
    if service.all_by_key::<RoleGiven>("collection", &found.record.id.to_string()).await?.len() >= MOST {
        return Err(ApiError::new(
            axum::http::StatusCode::CONFLICT,
            "LimitExceeded",
            format!("The collection has {MOST} roles"),
        ));
    }
    let given = RoleGiven { id: random_id()?, collection: found.record.id, principal, role: wish.role };
    let entry = service.entry(call.caller.identity, "role.create", found.record.id).detail(given.told());
    service.store.apply(Batch::new().insert(&given).require(&found).audit(entry)).await?;
    Ok(Answer(given.into()))
}

async fn role(call: &Call<ByUser>) -> Result<Versioned<RoleGiven>, ApiError> {
    let collection = administered(call).await?.record;
    let id = call.path.id("role", "RoleNotFound")?;
    let found = call.service.store.get::<RoleGiven>(&id.to_string()).await?;
    let found = found.filter(|given| given.record.collection == collection.id);
    found.ok_or_else(|| ApiError::not_found("RoleNotFound", format!("The collection has no role {id}")))
}

/// `GET /endpoint/{id}/role/{role}`.
pub(super) async fn show(call: Call<ByUser>) -> Result<Answer<RoleDocument>, ApiError> {
    Ok(Answer(role(&call).await?.record.into()))
}

/// `DELETE /endpoint/{id}/role/{role}`.
pub(super) async fn delete(call: Call<ByUser>) -> Result<Answer<Done>, ApiError> {
    let given = role(&call).await?;
    let entry = call.service.entry(call.caller.identity, "role.delete", given.record.collection);
    let entry = entry.detail(given.record.told());
    call.service.store.apply(Batch::new().delete(&given).audit(entry)).await?;
    Ok(Answer(Done::new(&call.place, "Deleted", "Role deleted successfully")))
}
