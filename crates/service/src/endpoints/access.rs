//! Rules of access to guest collections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::manage::{directory, given, given_away, managed};
use super::records::{AccessRule, Collection, Permissions, Principal, RoleName};
use crate::Service;
use crate::auth::ByUser;
use crate::auth::secrets::random_id;
use crate::clock;
use crate::groups::records::Group;
use crate::http::{Answer, ApiError, Call, Created, Done, Json};
use crate::store::{Batch, Versioned};

/// Rules of one collection at the most.
const MOST: usize = 1000;

/// A rule as it is told.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct AccessDocument {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    id: Uuid,
    principal_type: &'static str,
    principal: String,
    path: String,
    permissions: Permissions,
    role_id: Option<Uuid>,
    role_type: Option<&'static str>,
    create_time: String,
    expiration_date: Option<String>,
}

impl From<AccessRule> for AccessDocument {
    fn from(rule: AccessRule) -> Self {
        let (principal_type, principal) = principal_texts(rule.principal);
        Self {
            data_type: "access",
            id: rule.id,
            principal_type,
            principal,
            path: rule.path,
            permissions: rule.permissions,
            role_id: None,
            role_type: None,
            create_time: clock::iso(rule.created),
            expiration_date: rule.expires.map(clock::iso),
        }
    }
}

/// The API's words for a principal.
pub(super) fn principal_texts(principal: Principal) -> (&'static str, String) {
    match principal {
        Principal::Identity(id) => ("identity", id.to_string()),
        Principal::Group(id) => ("group", id.to_string()),
        Principal::AllAuthenticatedUsers => ("all_authenticated_users", String::new()),
        Principal::Anonymous => ("anonymous", String::new()),
    }
}

/// Rules of a collection.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct AccessList {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    endpoint: Uuid,
    length: usize,
    #[serde(rename = "DATA")]
    data: Vec<AccessDocument>,
}

/// `GET /endpoint/{id}/access_list`.
pub(super) async fn list(call: Call<ByUser>) -> Result<Answer<AccessList>, ApiError> {
    let found = managed(&call, RoleName::AccessManager).await?;
    let mut rules = call.service.rules_of(found.record.id).await?;
    rules.sort_by(|a, b| (&a.path, a.created).cmp(&(&b.path, b.created)));
    let data: Vec<_> = rules.into_iter().map(AccessDocument::from).collect();
    Ok(Answer(AccessList { data_type: "access_list", endpoint: found.record.id, length: data.len(), data }))
}

/// A rule that is to be.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct AccessWish {
    principal_type: String,
    #[serde(default)]
    principal: Option<String>,
    path: String,
    permissions: Permissions,
    expiration_date: Option<String>,
}

/// A rule was made.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct AccessCreated {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    code: &'static str,
    message: &'static str,
    access_id: Uuid,
    request_id: String,
    resource: String,
}

/// `POST /endpoint/{id}/access`.
pub(super) async fn create(call: Call<ByUser, Json<AccessWish>>) -> Result<Created<AccessCreated>, ApiError> {
    let found = given_away(&call, RoleName::AccessManager).await?;
    let (service, collection, wish) = (&call.service, &found.record, &call.body.0);
    if !collection.kind.is_guest() {
        return Err(ApiError::bad_request("Access rules are for guest collections; mapped ones ask their servers"));
    }
    let principal = service.principal(&wish.principal_type, wish.principal.as_deref().unwrap_or_default()).await?;
    service.check_anonymous_writes(collection, principal, wish.permissions).await?;
    if service.rules_of(collection.id).await?.len() >= MOST {
        return Err(ApiError::new(
            axum::http::StatusCode::CONFLICT,
            "LimitExceeded",
            format!("The collection has {MOST} rules"),
        ));
    }
    let rule = AccessRule {
        id: random_id()?,
        collection: collection.id,
        principal,
        path: rule_path(&wish.path)?,
        permissions: wish.permissions,
        created: service.clock.now(),
        expires: service.end(wish.expiration_date.as_deref())?,
    };
    let entry = service.entry(call.caller.identity, "access.create", collection.id).detail(told(&rule));
    service.store.apply(Batch::new().insert(&rule).require(&found).audit(entry)).await.map_err(
        |error| match error {
            crate::store::StoreError::Conflict(_) => ApiError::new(
                axum::http::StatusCode::CONFLICT,
                "Exists",
                "There is a rule for that principal and path: change it",
            ),
            other => other.into(),
        },
    )?;
    let (request_id, resource) = (call.place.request.to_string(), call.place.resource.clone());
    let message = "Access rule created successfully.";
    let (data_type, code) = ("access_create_result", "Created");
    Ok(Answer(AccessCreated { data_type, code, message, access_id: rule.id, request_id, resource }))
}

/// A rule, for the audit log.
fn told(rule: &AccessRule) -> Value {
    json!({"rule": rule.id, "principal": rule.principal, "path": rule.path, "permissions": rule.permissions,
           "until": rule.expires.map(clock::iso)})
}

fn rule_path(path: &str) -> Result<String, ApiError> {
    if !path.ends_with('/') {
        return Err(ApiError::bad_request(format!(
            "The path of a rule is a directory and ends with a slash: {path:?} does not"
        )));
    }
    directory(path)
}

impl Service {
    async fn check_anonymous_writes(
        &self,
        collection: &Collection,
        principal: Principal,
        permissions: Permissions,
    ) -> Result<(), ApiError> {
        let writes = principal == Principal::Anonymous && permissions == Permissions::ReadWrite;
        if writes && self.location(collection).await?.limits.no_anonymous_writes {
            return Err(ApiError::denied(
                "The collection, or the one that it is a directory of, lets nobody write without a login",
            ));
        }
        Ok(())
    }

    /// To whom something is to be given.
    ///
    /// # Errors
    /// 400 for no kind of principal, 404 for nobody.
    pub(crate) async fn principal(&self, kind: &str, text: &str) -> Result<Principal, ApiError> {
        let id = || {
            Uuid::try_parse(text)
                .map_err(|_| ApiError::bad_request(format!("{text:?} is no id (a UUID) of a principal")))
        };
        match kind {
            "identity" => {
                let id = id()?;
                let nobody = || ApiError::not_found("UserNotFound", format!("Nobody has the id {id}"));
                self.identity(id).await?.map(|_| Principal::Identity(id)).ok_or_else(nobody)
            }
            "group" => {
                let id = id()?;
                let nobody = || ApiError::not_found("GroupNotFound", format!("No group has the id {id}"));
                self.store.get::<Group>(&id.to_string()).await?.map(|_| Principal::Group(id)).ok_or_else(nobody)
            }
            "all_authenticated_users" => Ok(Principal::AllAuthenticatedUsers),
            "anonymous" => Ok(Principal::Anonymous),
            other => Err(ApiError::bad_request(format!("There is no principal_type {other:?}"))),
        }
    }

    fn end(&self, text: Option<&str>) -> Result<Option<Timestamp>, ApiError> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        let end = clock::parse(text).ok_or_else(|| ApiError::bad_request(format!("{text:?} is no date")))?;
        if end <= self.clock.now() {
            return Err(ApiError::bad_request("The expiration_date has passed already"));
        }
        Ok(Some(end))
    }
}

/// The rule of a collection that a call is about.
async fn rule<I>(call: &Call<ByUser, I>, collection: &Collection) -> Result<Versioned<AccessRule>, ApiError> {
    let id = call.path.id("rule", "AccessRuleNotFound")?;
    let rule = call.service.store.get::<AccessRule>(&id.to_string()).await?;
    let rule = rule.filter(|rule| rule.record.collection == collection.id);
    rule.ok_or_else(|| ApiError::not_found("AccessRuleNotFound", format!("The collection has no rule {id}")))
}

/// `GET /endpoint/{id}/access/{rule}`.
pub(super) async fn show(call: Call<ByUser>) -> Result<Answer<AccessDocument>, ApiError> {
    let collection = managed(&call, RoleName::AccessManager).await?;
    Ok(Answer(rule(&call, &collection.record).await?.record.into()))
}

/// What may change of a rule.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct AccessChange {
    permissions: Option<Permissions>,
    /// `null` takes it away.
    #[serde(default, deserialize_with = "given")]
    expiration_date: Option<Option<String>>,
}

/// `PUT /endpoint/{id}/access/{rule}`.
pub(super) async fn update(call: Call<ByUser, Json<AccessChange>>) -> Result<Answer<Done>, ApiError> {
    let collection = given_away(&call, RoleName::AccessManager).await?;
    let mut rule = rule(&call, &collection.record).await?;
    let wish = &call.body.0;
    rule.record.permissions = wish.permissions.unwrap_or(rule.record.permissions);
    let given = rule.record.permissions;
    call.service.check_anonymous_writes(&collection.record, rule.record.principal, given).await?;
    if let Some(date) = &wish.expiration_date {
        rule.record.expires = call.service.end(date.as_deref())?;
    }
    let entry = call.service.entry(call.caller.identity, "access.update", collection.record.id);
    let entry = entry.detail(told(&rule.record));
    call.service.store.apply(Batch::new().update(&rule).audit(entry)).await?;
    Ok(Answer(Done::new(&call.place, "Updated", "Access rule updated successfully")))
}

/// `DELETE /endpoint/{id}/access/{rule}`.
pub(super) async fn delete(call: Call<ByUser>) -> Result<Answer<Done>, ApiError> {
    let collection = managed(&call, RoleName::AccessManager).await?;
    let rule = rule(&call, &collection.record).await?;
    let entry = call.service.entry(call.caller.identity, "access.delete", collection.record.id);
    let entry = entry.detail(told(&rule.record));
    call.service.store.apply(Batch::new().delete(&rule).audit(entry)).await?;
    Ok(Answer(Done::new(&call.place, "Deleted", "Access rule deleted successfully")))
}
