//! Roles, in the manager's words.

use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::document::{success, told};
use super::{Manager, missing, needs_role, unprocessable};
use crate::auth::secrets::random_id;
use crate::endpoints::records::{Collection, Principal, RoleGiven, RoleName};
use crate::http::ApiError;
use crate::store::{Batch, Versioned};

/// What identities and groups are called here.
const IDENTITY: &str = "urn:globus:auth:identity:";
const GROUP: &str = "urn:globus:groups:id:";

/// Roles of one endpoint or collection at the most.
const MOST: usize = 1000;

/// A role that is to be given.
#[derive(Debug, Deserialize)]
pub(super) struct RoleWish {
    /// `None`: the endpoint.
    collection: Option<Uuid>,
    principal: String,
    role: String,
}

impl Manager<'_> {
    /// The endpoint, or the collection that is named, with what the caller may see of its roles.
    async fn place(&self, collection: Option<&str>, role: RoleName) -> Result<Versioned<Collection>, ApiError> {
        match collection {
            None => self.endpoint_as(role).await,
            Some(id) => self.own_as(id, role).await,
        }
    }

    /// Those of the caller; with `include=all_roles` everybody's, for administrators.
    pub(super) async fn list_roles(&self) -> Result<Value, ApiError> {
        let collection = self.query.get("collection_id").map(String::as_str);
        let all = self.query.get("include").is_some_and(|include| include.contains("all_roles"));
        let place = match (all, collection) {
            (true, _) => self.place(collection, RoleName::Administrator).await?,
            (false, None) => self.endpoint.clone(),
            (false, Some(id)) => self.own(id).await?,
        };
        let who = self.service.standing(&self.actor, &place.record).await?.who;
        let given = self.service.all_by_key::<RoleGiven>("collection", &place.record.id.to_string()).await?;
        let given = given.into_iter().map(|found| found.record).filter(|one| all || who.is(one.principal));
        let mut data: Vec<_> = given.map(|one| self.role_document(&one)).collect();
        if all || self.actor.identity == place.record.owner {
            let (id, principal) = (place.record.id, Principal::Identity(place.record.owner));
            let owner = RoleGiven { id, collection: id, principal, role: RoleName::Administrator };
            let mut document = self.role_document(&owner);
            document["role"] = json!("owner");
            data.insert(0, document);
        }
        Ok(success(data))
    }

    fn role_document(&self, given: &RoleGiven) -> Value {
        let principal = match given.principal {
            Principal::Group(id) => format!("{GROUP}{id}"),
            Principal::Identity(id) => format!("{IDENTITY}{id}"),
            Principal::AllAuthenticatedUsers | Principal::Anonymous => String::new(),
        };
        let collection = Some(given.collection).filter(|id| *id != self.endpoint.record.id);
        json!({"DATA_TYPE": "role#1.0.0", "id": given.id, "collection": collection, "principal": principal,
               "role": given.role.name()})
    }

    pub(super) async fn create_role(&self, wish: RoleWish) -> Result<Value, ApiError> {
        let collection = wish.collection.map(|id| id.to_string());
        let found = self.place(collection.as_deref(), RoleName::Administrator).await?;
        if !self.service.standing(&self.actor, &found.record).await?.may_give(&found.record, RoleName::Administrator) {
            return Err(needs_role(RoleName::Administrator));
        }
        let role: RoleName = serde_json::from_value(json!(wish.role))
            .map_err(|_| unprocessable(format!("There is no role {:?} to be given", wish.role)))?;
        let (kind, id) = match (wish.principal.strip_prefix(IDENTITY), wish.principal.strip_prefix(GROUP)) {
            (Some(id), _) => ("identity", id),
            (_, Some(id)) => ("group", id),
            _ => return Err(unprocessable(format!("A principal is {IDENTITY}ID or {GROUP}ID"))),
        };
        let principal = self.service.principal(kind, id).await?;
        if self.service.all_by_key::<RoleGiven>("collection", &found.record.id.to_string()).await?.len() >= MOST {
            return Err(unprocessable(format!("There are {MOST} roles, as many as there may be")));
        }
        let given = RoleGiven { id: random_id()?, collection: found.record.id, principal, role };
        let entry = self.service.entry(self.actor.identity, "role.create", found.record.id).detail(given.told());
        self.service.store.apply(Batch::new().insert(&given).require(&found).audit(entry)).await?;
        Ok(told("success", &format!("Created Role {}", given.id), vec![self.role_document(&given)]))
    }

    /// A role of this endpoint or a collection of it, if the caller administers that.
    async fn role(&self, id: &str) -> Result<Versioned<RoleGiven>, ApiError> {
        let found = self.service.store.get::<RoleGiven>(id).await?.ok_or_else(|| missing("role"))?;
        let at = found.record.collection;
        let place = Some(at.to_string()).filter(|_| at != self.endpoint.record.id);
        self.place(place.as_deref(), RoleName::Administrator).await?;
        Ok(found)
    }

    pub(super) async fn show_role(&self, id: &str) -> Result<Value, ApiError> {
        let found = self.role(id).await?;
        Ok(success(vec![self.role_document(&found.record)]))
    }

    pub(super) async fn delete_role(&self, id: &str) -> Result<Value, ApiError> {
        let found = self.role(id).await?;
        let entry = self.service.entry(self.actor.identity, "role.delete", found.record.collection);
        let entry = entry.detail(found.record.told());
        self.service.store.apply(Batch::new().delete(&found).audit(entry)).await?;
        Ok(told("success", &format!("Deleted Role {id}"), Vec::new()))
    }
}
