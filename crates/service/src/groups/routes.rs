//! The routes of groups.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::actions::Action;
use super::records::{Group, GroupRole, Membership, Policies, Status, Visibility};
use crate::Service;
use crate::auth::User;
use crate::auth::scope::{GroupsAll, ViewGroups};
use crate::auth::secrets::random_id;
use crate::http::{Answer, ApiError, Call, Created, Json, Route};
use crate::store::{Batch, Versioned};

/// Groups of one identity at the most.
const MOST: usize = 1000;
/// Longest name and longest other text, characters.
const LONGEST_NAME: usize = 128;
const LONGEST: usize = 4096;
/// Changes of memberships in one request.
const MOST_ACTIONS: usize = 1000;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/v2/groups/my_groups", "my_groups", my_groups),
        Route::post("/v2/groups", "group_create", create),
        Route::get("/v2/groups/{id}", "group_show", show),
        Route::put("/v2/groups/{id}", "group_update", update),
        Route::delete("/v2/groups/{id}", "group_delete", delete),
        Route::post("/v2/groups/{id}", "group_membership_actions", act),
        Route::get("/v2/groups/{id}/policies", "group_policies", policies),
        Route::put("/v2/groups/{id}/policies", "group_set_policies", set_policies),
    ]
}

type GroupCall<I = ()> = Call<User<GroupsAll>, I>;

/// `GET /v2/groups/my_groups`: those that one belongs to.
async fn my_groups(call: Call<User<ViewGroups>>) -> Result<Answer<Vec<Value>>, ApiError> {
    let who = call.caller.identity;
    let mut documents = Vec::new();
    for group in call.service.groups_of(who).await? {
        documents.push(call.service.group_document(&group, who, &[]).await?);
    }
    Ok(Answer(documents))
}

/// A group that is to be, or what it is to be from now on.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct GroupWish {
    name: String,
    description: Option<String>,
    terms_and_conditions: Option<String>,
    parent_id: Option<Uuid>,
}

impl GroupWish {
    fn checked(&self) -> Result<(), ApiError> {
        let name = self.name.trim();
        if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(ApiError::bad_request(format!(
                "A group's name has 1 to {LONGEST_NAME} characters, and no newlines"
            )));
        }
        let texts = [&self.description, &self.terms_and_conditions];
        if texts.into_iter().flatten().any(|text| text.chars().count() > LONGEST) {
            return Err(ApiError::bad_request(format!("Texts about groups have at most {LONGEST} characters")));
        }
        if self.parent_id.is_some() {
            return Err(ApiError::bad_request("Groups within groups are not supported: leave parent_id out"));
        }
        Ok(())
    }
}

/// `POST /v2/groups`: who makes it is its admin.
async fn create(call: GroupCall<Json<GroupWish>>) -> Result<Created<Value>, ApiError> {
    let (service, wish, who) = (&call.service, &call.body.0, call.caller.identity);
    wish.checked()?;
    if service.groups_of(who).await?.len() >= MOST {
        return Err(ApiError::denied(format!("You belong to {MOST} groups, as many as anybody may")));
    }
    let group = Group {
        id: random_id()?,
        name: wish.name.trim().to_owned(),
        description: wish.description.clone(),
        terms: wish.terms_and_conditions.clone(),
        policies: Policies::default(),
        members: vec![Membership { identity: who, role: GroupRole::Admin, status: Status::Active }],
        created: service.clock.now(),
    };
    let entry = service.entry(who, "group.create", group.id);
    service.store.apply(Batch::new().insert(&group).audit(entry)).await?;
    service.group_document(&group, who, &[]).await.map(Answer)
}

impl Service {
    /// A group that somebody may know of.
    async fn group<I>(&self, call: &GroupCall<I>) -> Result<Versioned<Group>, ApiError> {
        let id = call.path.id("id", "GroupNotFound")?;
        let found = self.store.get::<Group>(&id.to_string()).await?;
        let seen = |group: &Group| {
            group.policies.group_visibility == Visibility::Authenticated || group.of(call.caller.identity).is_some()
        };
        let missing = || ApiError::not_found("GroupNotFound", format!("There is no group {id}"));
        found.filter(|found| seen(&found.record)).ok_or_else(missing)
    }

    /// A group of which the caller is an admin.
    async fn own_group<I>(&self, call: &GroupCall<I>) -> Result<Versioned<Group>, ApiError> {
        let found = self.group(call).await?;
        match found.record.role_of(call.caller.identity) {
            Some(GroupRole::Admin) => Ok(found),
            _ => Err(ApiError::denied("Only admins of the group may do that")),
        }
    }

    async fn change_group(
        &self,
        by: Uuid,
        found: &Versioned<Group>,
        (action, detail): (&str, Value),
    ) -> Result<(), ApiError> {
        let entry = self.entry(by, action, found.record.id).detail(detail);
        Ok(self.store.apply(Batch::new().update(found).audit(entry)).await?)
    }
}

/// `GET /v2/groups/{id}?include=memberships,my_memberships`
async fn show(call: GroupCall) -> Result<Answer<Value>, ApiError> {
    let found = call.service.group(&call).await?;
    let include: Vec<_> = call.query.list("include").collect();
    call.service.group_document(&found.record, call.caller.identity, &include).await.map(Answer)
}

/// `PUT /v2/groups/{id}`
async fn update(call: GroupCall<Json<GroupWish>>) -> Result<Answer<Value>, ApiError> {
    let mut found = call.service.own_group(&call).await?;
    let wish = &call.body.0;
    wish.checked()?;
    found.record.name = wish.name.trim().to_owned();
    found.record.description.clone_from(&wish.description);
    found.record.terms.clone_from(&wish.terms_and_conditions);
    call.service
        .change_group(call.caller.identity, &found, ("group.update", json!({"name": found.record.name})))
        .await?;
    call.service.group_document(&found.record, call.caller.identity, &[]).await.map(Answer)
}

/// `DELETE /v2/groups/{id}`: what was given to it is nobody's.
async fn delete(call: GroupCall) -> Result<Answer<Value>, ApiError> {
    let found = call.service.own_group(&call).await?;
    let entry = call.service.entry(call.caller.identity, "group.delete", found.record.id);
    call.service.store.apply(Batch::new().delete(&found).audit(entry)).await?;
    call.service.group_document(&found.record, call.caller.identity, &[]).await.map(Answer)
}

/// `GET /v2/groups/{id}/policies`
async fn policies(call: GroupCall) -> Result<Answer<Policies>, ApiError> {
    Ok(Answer(call.service.group(&call).await?.record.policies))
}

/// `PUT /v2/groups/{id}/policies`
async fn set_policies(call: GroupCall<Json<Policies>>) -> Result<Answer<Policies>, ApiError> {
    let mut found = call.service.own_group(&call).await?;
    let wish = &call.body.0;
    if wish.signup_fields.len() > 64 || wish.signup_fields.iter().any(|field| field.len() > LONGEST_NAME) {
        return Err(ApiError::bad_request("These are too many or too long signup_fields"));
    }
    found.record.policies = wish.clone();
    call.service.change_group(call.caller.identity, &found, ("group.policies", json!(found.record.policies))).await?;
    Ok(Answer(found.record.policies))
}

/// Who is meant, and what they are to be.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Target {
    identity_id: Uuid,
    role: Option<GroupRole>,
}

/// `POST /v2/groups/{id}`: changes memberships, each for itself; what could not be done is told beside what was.
async fn act(call: GroupCall<Json<BTreeMap<Action, Vec<Target>>>>) -> Result<Answer<Value>, ApiError> {
    let (service, by, wanted) = (&call.service, call.caller.identity, &call.body.0);
    let mut found = service.group(&call).await?;
    if wanted.values().map(Vec::len).sum::<usize>() > MOST_ACTIONS {
        return Err(ApiError::bad_request(format!("At most {MOST_ACTIONS} memberships are changed at once")));
    }
    let (mut done, mut errors, mut told) = (Map::new(), Map::new(), Map::new());
    for action in Action::ALL.into_iter().filter(|action| wanted.contains_key(action)) {
        for target in &wanted[&action] {
            let known = service.identity(target.identity_id).await?.is_some();
            let changed = match known {
                true => found.record.act(by, action, target.identity_id, target.role),
                false => Err(("NOT_FOUND", "Nobody has that id")),
            };
            match changed {
                Ok(membership) => {
                    push(&mut told, action, json!({"identity": membership.identity, "role": membership.role}));
                    push(&mut done, action, service.membership(found.record.id, &membership).await?);
                }
                Err((code, detail)) => {
                    let error = json!({"identity_id": target.identity_id, "code": code, "detail": detail});
                    push(&mut errors, action, error);
                }
            }
        }
    }
    if !done.is_empty() {
        service.change_group(by, &found, ("group.members", Value::Object(told))).await?;
    }
    if !errors.is_empty() {
        done.insert("errors".to_owned(), Value::Object(errors));
    }
    Ok(Answer(Value::Object(done)))
}

fn push(into: &mut Map<String, Value>, action: Action, document: Value) {
    let list = into.entry(action.name()).or_insert_with(|| json!([]));
    list.as_array_mut().expect("only lists are inserted").push(document);
}
