//! Finding endpoints and collections.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::document::EndpointDocument;
use super::lookup::Standing;
use super::manage::administered;
use super::records::{Collection, RoleName};
use crate::auth::ByUser;
use crate::auth::identities::Names;
use crate::http::query::Page;
use crate::http::{Answer, ApiError, Call, Query};

/// Entries of a page, where nothing else is said, and at the most.
const DEFAULT: usize = 25;
const MOST: usize = 1000;

/// Endpoints and collections.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct EndpointList {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    offset: usize,
    limit: usize,
    length: usize,
    has_next_page: bool,
    #[serde(rename = "DATA")]
    data: Vec<EndpointDocument>,
}

impl EndpointList {
    /// A list that is no part of another.
    fn whole(data: Vec<EndpointDocument>) -> Self {
        let length = data.len();
        Self { data_type: "endpoint_list", offset: 0, limit: length, length, has_next_page: false, data }
    }
}

/// What is searched for.
struct Wanted {
    scope: String,
    words: Vec<String>,
    owner: Option<Uuid>,
    host: Option<Uuid>,
    functional: Option<bool>,
    kind: Option<String>,
}

/// What `filter_scope` may be.
const SCOPES: &[&str] = &[
    "all",
    "my-endpoints",
    "my-gcp-endpoints",
    "recently-used",
    "in-use",
    "shared-by-me",
    "shared-with-me",
    "administered-by-me",
    "hide-no-permissions",
];

impl Wanted {
    fn of(query: &Query) -> Result<Self, ApiError> {
        let scope = query.filled("filter_scope").unwrap_or("all").to_owned();
        if !SCOPES.contains(&scope.as_str()) {
            return Err(ApiError::bad_request(format!("`filter_scope` is one of {}", SCOPES.join(", "))));
        }
        let text = query.filled("filter_fulltext").unwrap_or_default().to_lowercase();
        Ok(Self {
            scope,
            words: text.split_whitespace().map(str::to_owned).collect(),
            owner: query.value("filter_owner_id")?,
            host: query.value("filter_host_endpoint")?,
            functional: query.flag("filter_non_functional")?.map(|non_functional| !non_functional),
            kind: query.filled("filter_entity_type").map(str::to_owned),
        })
    }

    /// What can be said without a look at anybody's rights.
    fn fits(&self, collection: &Collection, owner: &str) -> bool {
        let about = &collection.about;
        let functional = collection.kind != super::records::EntityType::Endpoint;
        let texts = [&about.description, &about.organization, &about.department].into_iter().flatten();
        let text: Vec<_> =
            texts.chain([&about.display_name]).chain(&about.keywords).map(|text| text.to_lowercase()).collect();
        let id = collection.id.to_string();
        let has = |word: &String| id == *word || owner.contains(word) || text.iter().any(|text| text.contains(word));
        self.words.iter().all(has)
            && self.owner.is_none_or(|owner| owner == collection.owner)
            && self.host.is_none_or(|host| collection.host == Some(host))
            && self.functional.is_none_or(|wanted| wanted == functional)
            && self.kind.as_deref().is_none_or(|kind| kind == collection.kind.name())
    }

    fn is_in_scope(&self, collection: &Collection, standing: &Standing) -> bool {
        let mine = standing.who.identity == Some(collection.owner);
        match self.scope.as_str() {
            "my-endpoints" => mine,
            "my-gcp-endpoints" => mine && collection.kind.is_personal(),
            "recently-used" | "in-use" => mine && collection.last_accessed.is_some(),
            "shared-by-me" => mine && collection.kind.is_guest(),
            // What is not public is seen by its rules only.
            "shared-with-me" => !mine && collection.kind.is_guest() && standing.roles.is_empty(),
            "administered-by-me" => standing.may_as(RoleName::Administrator),
            _ => true,
        }
    }
}

/// `GET /endpoint_search`: by name.
pub(super) async fn search(call: Call<ByUser>) -> Result<Answer<EndpointList>, ApiError> {
    let wanted = Wanted::of(&call.query)?;
    let page = Page::of(&call.query, DEFAULT, MOST)?;
    let service = &call.service;
    let who = service.who(call.caller.identity).await?;
    let (mut found, mut names) = (Vec::new(), Names::default());
    for collection in
        service.all::<Collection>().await?.into_iter().map(|found| found.record).filter(|one| !one.deleted)
    {
        let owner = names.of(service, collection.owner).await?.unwrap_or_default();
        if !wanted.fits(&collection, &owner) {
            continue;
        }
        let standing = service.standing_as(&who, call.caller.admin, &collection).await?;
        if wanted.is_in_scope(&collection, &standing) && service.is_visible(&standing, &collection).await? {
            let shared = wanted.scope != "shared-with-me" && wanted.scope != "hide-no-permissions";
            if shared || has_access(&call, &collection, &standing).await? {
                found.push((collection, standing));
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| {
        (a.about.display_name.to_lowercase(), a.id).cmp(&(b.about.display_name.to_lowercase(), b.id))
    });
    let (cut, has_next_page) = page.cut(found);
    let mut data = Vec::new();
    for (collection, standing) in &cut {
        data.push(service.endpoint_document(collection, standing).await?);
    }
    let (offset, limit, length) = (page.offset, page.limit, data.len());
    Ok(Answer(EndpointList { data_type: "endpoint_list", offset, limit, length, has_next_page, data }))
}

/// Whether somebody has any right to files there.
async fn has_access(call: &Call<ByUser>, collection: &Collection, standing: &Standing) -> Result<bool, ApiError> {
    if !collection.kind.is_guest() || !standing.roles.is_empty() {
        return Ok(true);
    }
    call.service.has_rule(standing, collection).await
}

/// `GET /endpoint/{id}/my_shared_endpoint_list`: the caller's guest collections there.
pub(super) async fn mine_on(call: Call<ByUser>) -> Result<Answer<EndpointList>, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    call.service.visible(&call.caller, id).await?;
    guests(&call, id, Some(call.caller.identity)).await
}

async fn guests(call: &Call<ByUser>, host: Uuid, owner: Option<Uuid>) -> Result<Answer<EndpointList>, ApiError> {
    let who = call.service.who(call.caller.identity).await?;
    let mut data = Vec::new();
    for guest in
        call.service.all_by_key::<Collection>("host", &host.to_string()).await?.into_iter().map(|found| found.record)
    {
        if !guest.deleted && owner.is_none_or(|owner| owner == guest.owner) {
            let standing = call.service.standing_as(&who, call.caller.admin, &guest).await?;
            data.push(call.service.endpoint_document(&guest, &standing).await?);
        }
    }
    Ok(Answer(EndpointList::whole(data)))
}

/// Guest collections of a host, briefly.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct SharedList {
    shared_endpoints: Vec<SharedId>,
    next_token: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct SharedId {
    id: Uuid,
}

/// `GET /endpoint/{id}/shared_endpoint_list`: for the host's administrators, in the order of ids.
pub(super) async fn shared_on(call: Call<ByUser>) -> Result<Answer<SharedList>, ApiError> {
    let host = administered(&call).await?.record;
    let most: usize = call.query.value("max_results")?.unwrap_or(MOST).clamp(1, MOST);
    let after: Option<Uuid> = call.query.value("next_token")?;
    let mut ids: Vec<_> = call.service.all_by_key::<Collection>("host", &host.id.to_string()).await?;
    ids.retain(|found| !found.record.deleted && after.is_none_or(|after| found.record.id > after));
    ids.sort_by_key(|found| found.record.id);
    let more = ids.len() > most;
    ids.truncate(most);
    let next_token = ids.last().filter(|_| more).map(|last| last.record.id.to_string());
    let shared_endpoints = ids.into_iter().map(|found| SharedId { id: found.record.id }).collect();
    Ok(Answer(SharedList { shared_endpoints, next_token }))
}

/// `GET /endpoint_manager/monitored_endpoints`: those whose tasks the caller may see.
pub(super) async fn monitored(call: Call<ByUser>) -> Result<Answer<EndpointList>, ApiError> {
    let who = call.service.who(call.caller.identity).await?;
    let mut data = Vec::new();
    for collection in
        call.service.all::<Collection>().await?.into_iter().map(|found| found.record).filter(|one| !one.deleted)
    {
        let standing = call.service.standing_as(&who, call.caller.admin, &collection).await?;
        if standing.may_as(RoleName::ActivityMonitor) {
            data.push(call.service.endpoint_document(&collection, &standing).await?);
        }
    }
    Ok(Answer(EndpointList::whole(data)))
}

/// `GET /endpoint_manager/endpoint/{id}/hosted_endpoint_list`: all guest collections there, for the host's administrators.
pub(super) async fn hosted(call: Call<ByUser>) -> Result<Answer<EndpointList>, ApiError> {
    let host = administered(&call).await?.record;
    guests(&call, host.id, None).await
}
