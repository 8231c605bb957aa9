//! Collections of the endpoint, in the manager's words.

use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::document::{POSIX, success, told};
use super::{Manager, missing, needs_role, read, unprocessable};
use crate::endpoints::manage::EndpointWish;
use crate::endpoints::records::{Collection, EntityType, RoleName};
use crate::http::ApiError;
use crate::store::{Batch, Versioned};

/// Collections on a page, where nothing is said; at the most.
const PAGE: usize = 100;
const MOST: usize = 1000;

/// What would restrict who uses a collection, or how, and is not carried out: it is refused, so that nobody relies on it.
const NOT_HERE: &[&str] = &[
    "sharing_users_allow",
    "sharing_users_deny",
    "sharing_restrict_paths",
    "guest_auth_policy_id",
    "domain_name",
    "delete_protected",
    "restrict_transfers_to_high_assurance",
    "acl_expiration_mins",
    "auto_delete_timeout",
    "associated_flow_policy",
    "activity_notification_policy",
    "https_methods",
    "preserve_modtime",
    "policies",
];

/// What only the manager's documents have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct CollectionWish {
    collection_type: Option<String>,
    collection_base_path: Option<String>,
    identity_id: Option<Uuid>,
    storage_gateway_id: Option<Uuid>,
    mapped_collection_id: Option<Uuid>,
    user_credential_id: Option<Uuid>,
    allow_guest_collections: Option<bool>,
    enable_https: Option<bool>,
}

/// A document as it came, and what was read of it.
struct Wish {
    own: CollectionWish,
    about: EndpointWish,
}

impl Wish {
    fn of(body: Value) -> Result<Self, ApiError> {
        for field in NOT_HERE {
            let says_something = match body.get(field) {
                None | Some(Value::Null | Value::Bool(false)) => false,
                Some(Value::Array(list)) => !list.is_empty(),
                // A document of policies that says nothing but what it is.
                Some(Value::Object(map)) => map.iter().any(|(name, value)| {
                    name != "DATA_TYPE" && !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
                }),
                Some(_) => true,
            };
            if says_something {
                return Err(unprocessable(format!("{field} is not carried out here, so it cannot be set")));
            }
        }
        Ok(Self { own: read(body.clone())?, about: read(body)? })
    }

    fn apply(&self, collection: &mut Collection) -> Result<(), ApiError> {
        self.about.clone().apply(collection)?;
        let policy = &mut collection.policy;
        policy.no_https = self.own.enable_https.map_or(policy.no_https, |wanted| !wanted);
        match self.own.allow_guest_collections {
            Some(true) if collection.kind.is_guest() => {
                Err(unprocessable("Nothing is shared of what is shared already"))
            }
            Some(allowed) => {
                policy.allow_guests = allowed;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Manager<'_> {
    pub(super) async fn list_collections(&self) -> Result<Value, ApiError> {
        let filters = self.query.get("filter").map(String::as_str).unwrap_or_default();
        let filters: Vec<_> = filters.split(',').map(str::trim).filter(|filter| !filter.is_empty()).collect();
        let of = match self.query.get("mapped_collection_id") {
            Some(id) => Some(Uuid::try_parse(id).map_err(|_| missing("collection"))?),
            None => None,
        };
        let size = self.query.get("page_size").and_then(|size| size.parse().ok()).unwrap_or(PAGE).clamp(1, MOST);
        let after = self.query.get("marker").and_then(|marker| Uuid::try_parse(marker).ok());
        let key = self.endpoint.record.id.to_string();
        let mut found = self.service.all_by_key::<Collection>("endpoint", &key).await?;
        found.retain(|found| {
            let collection = &found.record;
            let is_one = !collection.deleted && collection.kind != EntityType::Endpoint;
            is_one && of.is_none_or(|of| collection.host == Some(of)) && after.is_none_or(|after| collection.id > after)
        });
        found.sort_by_key(|found| found.record.id);
        let who = self.service.who(self.actor.identity).await?;
        let (mut data, mut more, mut last) = (Vec::new(), false, None);
        for collection in found.into_iter().map(|found| found.record) {
            let standing = self.service.standing_as(&who, self.actor.admin, &collection).await?;
            let fits = |filter: &&str| match *filter {
                "mapped_collections" => !collection.kind.is_guest(),
                "guest_collections" => collection.kind.is_guest(),
                "managed_by_me" => standing.may_as(RoleName::Administrator),
                "created_by_me" => collection.owner == self.actor.identity,
                _ => false,
            };
            let kinds: Vec<_> = filters.iter().filter(|filter| filter.ends_with("_collections")).collect();
            let kind_fits = kinds.is_empty() || kinds.into_iter().any(&fits);
            let others_fit = filters.iter().filter(|filter| !filter.ends_with("_collections")).all(fits);
            if !kind_fits || !others_fit || !self.service.is_visible(&standing, &collection).await? {
                continue;
            }
            if data.len() == size {
                more = true;
                break;
            }
            last = Some(collection.id);
            data.push(self.collection_document(&collection).await?);
        }
        let mut page = success(data);
        if more {
            page["has_next_page"] = json!(true);
            page["marker"] = json!(last);
        }
        Ok(page)
    }

    pub(super) async fn show_collection(&self, id: &str) -> Result<Value, ApiError> {
        let found = self.own(id).await?;
        Ok(success(vec![self.collection_document(&found.record).await?]))
    }

    pub(super) async fn create_collection(&self, body: Value) -> Result<Value, ApiError> {
        let wish = Wish::of(body)?;
        let mut made = match wish.own.collection_type.as_deref() {
            Some("mapped") => self.new_mapped(&wish).await?,
            Some("guest") => self.new_guest(&wish).await?,
            _ => return Err(unprocessable("The collection_type is mapped or guest")),
        };
        made.policy.allow_guests = false;
        wish.apply(&mut made)?;
        self.service.add_collection_record(&made, self.actor.identity).await?;
        let mut told = told("success", "Operation successful", vec![self.collection_document(&made).await?]);
        told["http_response_code"] = json!(201);
        Ok(told)
    }

    async fn new_mapped(&self, wish: &Wish) -> Result<Collection, ApiError> {
        let endpoint = self.endpoint_as(RoleName::Administrator).await?.record;
        if wish.own.storage_gateway_id.is_none() {
            return Err(unprocessable("A mapped collection needs its storage_gateway_id"));
        }
        self.check_gateway(wish.own.storage_gateway_id)?;
        let owner = wish.own.identity_id.unwrap_or(self.actor.identity);
        if self.service.identity(owner).await?.is_none() {
            return Err(unprocessable(format!("Nobody has the id {owner}")));
        }
        let base = self.base(wish)?;
        self.service.new_collection(EntityType::Mapped, owner, &self.name(wish)?, endpoint.id, None, base)
    }

    async fn new_guest(&self, wish: &Wish) -> Result<Collection, ApiError> {
        let host = wish.own.mapped_collection_id.ok_or_else(|| unprocessable("mapped_collection_id is missing"))?;
        let host = self.own(&host.to_string()).await?.record;
        if wish.own.identity_id.is_some_and(|owner| owner != self.actor.identity) {
            return Err(needs_role(RoleName::Administrator));
        }
        let credential = wish.own.user_credential_id.ok_or_else(|| unprocessable("user_credential_id is missing"))?;
        self.own_credential(credential).await?;
        if host.kind != EntityType::Mapped {
            return Err(unprocessable("Guest collections are made of mapped collections only"));
        }
        if !host.policy.allow_guests {
            return Err(ApiError::denied(format!("{} does not allow guest collections", host.about.display_name)));
        }
        self.service.may_make(&self.actor).await?;
        let (owner, base) = (self.actor.identity, self.base(wish)?);
        self.service.new_collection(EntityType::Guest, owner, &self.name(wish)?, host.endpoint, Some(host.id), base)
    }

    fn name(&self, wish: &Wish) -> Result<String, ApiError> {
        wish.about.display_name.clone().ok_or_else(|| unprocessable("display_name is missing"))
    }

    fn base<'w>(&self, wish: &'w Wish) -> Result<&'w str, ApiError> {
        wish.own.collection_base_path.as_deref().ok_or_else(|| unprocessable("collection_base_path is missing"))
    }

    pub(super) async fn update_collection(&self, id: &str, body: Value) -> Result<Value, ApiError> {
        let mut found = self.own_as(id, RoleName::Administrator).await?;
        let wish = Wish::of(body)?;
        unchanged(&found, &wish.own)?;
        let before = found.record.clone();
        wish.apply(&mut found.record)?;
        self.service.standing(&self.actor, &before).await?.check_change(&before, &found.record)?;
        let entry = self.service.entry(self.actor.identity, "collection.update", found.record.id);
        self.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
        Ok(told("success", &format!("Updated Collection {id}"), vec![self.collection_document(&found.record).await?]))
    }

    pub(super) async fn delete_collection(&self, id: &str) -> Result<Value, ApiError> {
        let found = self.own_as(id, RoleName::Administrator).await?;
        self.service.take_away(found, self.actor.identity).await?;
        Ok(told("success", &format!("Deleted Collection {id}"), Vec::new()))
    }

    async fn collection_document(&self, collection: &Collection) -> Result<Value, ApiError> {
        let (about, policy) = (&collection.about, &collection.policy);
        let place = self.service.https_place(collection.endpoint).await?;
        let https = place.as_ref().filter(|_| !policy.no_https).map(|place| format!("{place}/{}", collection.id));
        let mut document = json!({
            "DATA_TYPE": "collection#1.8.0", "id": collection.id, "connector_id": POSIX,
            "collection_type": if collection.kind.is_guest() { "guest" } else { "mapped" },
            "collection_base_path": collection.base, "root_path": "/", "identity_id": collection.owner,
            "display_name": about.display_name, "public": collection.public, "https_url": https, "manager_url": place,
            "storage_gateway_id": self.gateway_id(), "deleted": collection.deleted, "created_at": crate::clock::iso(collection.created),
            "last_access": collection.last_accessed.map(crate::clock::iso), "high_assurance": false, "require_mfa": false,
            "authentication_timeout_mins": null, "default_directory": policy.default_directory,
            "force_encryption": policy.force_encryption, "force_verify": policy.force_verify,
            "disable_verify": policy.disable_verify, "disable_anonymous_writes": policy.disable_anonymous_writes,
            "enable_https": !policy.no_https, "organization": about.organization, "department": about.department,
            "description": about.description, "contact_email": about.contact_email, "contact_info": about.contact_info,
            "info_link": about.info_link, "keywords": about.keywords, "user_message": about.user_message,
            "user_message_link": about.user_message_link,
        });
        match collection.host {
            Some(host) => document["mapped_collection_id"] = json!(host),
            None => document["allow_guest_collections"] = json!(policy.allow_guests),
        }
        Ok(document)
    }
}

/// What a collection is made with stays.
fn unchanged(found: &Versioned<Collection>, wish: &CollectionWish) -> Result<(), ApiError> {
    let collection = &found.record;
    let stays = [
        wish.collection_type.as_deref().is_none_or(|kind| (kind == "guest") == collection.kind.is_guest()),
        wish.collection_base_path
            .as_deref()
            .is_none_or(|base| base.trim_end_matches('/') == collection.base.trim_end_matches('/')),
        wish.identity_id.is_none_or(|owner| owner == collection.owner),
        wish.mapped_collection_id.is_none_or(|host| Some(host) == collection.host),
    ];
    if stays.iter().all(|stays| *stays) {
        return Ok(());
    }
    Err(unprocessable("Kind, base path and owner of a collection do not change: make another one"))
}
