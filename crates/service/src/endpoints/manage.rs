//! Endpoints and collections are made, changed and taken away.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::Server;
use whimbrel_engine::task::normal;

use super::document::{EndpointDocument, ServerDocument};
use super::records::{About, Collection, EntityType, Policy, RoleName};
use crate::Service;
use crate::auth::scope::TransferAll;
use crate::auth::secrets::{digest, random, random_id};
use crate::auth::{Actor, Admin, ByUser};
use crate::grid::{self, Logins};
use crate::http::{Answer, ApiError, Call, Created, Done, Json, Place};
use crate::store::{AuditEntry, Batch, Versioned};

/// Longest text that somebody may say about a collection, characters.
const LONGEST: usize = 4096;
/// Longest name, characters.
const LONGEST_NAME: usize = 128;
/// Endpoints and collections that one identity may make: as many as the hosted service allows.
const MOST: usize = 1000;

/// What is said or changed about a collection; a field that is there and `null` is taken away.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[allow(missing_docs, reason = "the Transfer API's own words")]
pub struct EndpointWish {
    pub display_name: Option<String>,
    #[serde(deserialize_with = "given")]
    pub description: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub organization: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub department: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub keywords: Option<Option<Value>>,
    #[serde(deserialize_with = "given")]
    pub contact_email: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub contact_info: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub info_link: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub user_message: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub user_message_link: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub default_directory: Option<Option<String>>,
    pub public: Option<bool>,
    pub force_encryption: Option<bool>,
    pub force_verify: Option<bool>,
    pub disable_verify: Option<bool>,
    pub disable_anonymous_writes: Option<bool>,
    /// An addition of ours: users of a mapped collection let each program use it in their name first.
    pub data_access: Option<bool>,
    #[serde(deserialize_with = "given")]
    pub network_use: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub max_concurrency: Option<Option<u32>>,
    #[serde(deserialize_with = "given")]
    pub preferred_concurrency: Option<Option<u32>>,
    #[serde(deserialize_with = "given")]
    pub max_parallelism: Option<Option<u32>>,
    #[serde(deserialize_with = "given")]
    pub preferred_parallelism: Option<Option<u32>>,
    /// An addition of ours: most bytes a second of each account's transfers with it, on each of its servers.
    #[serde(deserialize_with = "given")]
    pub max_rate: Option<Option<u64>>,
    #[serde(deserialize_with = "given")]
    pub subscription_id: Option<Option<Uuid>>,
    /// Of new ones: on the caller's own machine.
    pub is_globus_connect: Option<bool>,
}

/// Tells what is `null` from what is not there.
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl EndpointWish {
    /// Changes a collection; nothing of it if something is wrong.
    pub(crate) fn apply(self, collection: &mut Collection) -> Result<(), ApiError> {
        let about = &mut collection.about;
        if let Some(name) = self.display_name {
            about.display_name = display_name(&name)?;
        }
        for (field, wish) in [
            (&mut about.description, self.description),
            (&mut about.organization, self.organization),
            (&mut about.department, self.department),
            (&mut about.contact_email, self.contact_email),
            (&mut about.contact_info, self.contact_info),
            (&mut about.info_link, self.info_link),
            (&mut about.user_message, self.user_message),
            (&mut about.user_message_link, self.user_message_link),
        ] {
            if let Some(text) = wish {
                *field = text.filter(|text| !text.is_empty()).map(text_of).transpose()?;
            }
        }
        if let Some(words) = self.keywords {
            about.keywords = words.map(keywords).transpose()?.unwrap_or_default();
        }
        for link in [&about.info_link, &about.user_message_link].into_iter().flatten() {
            // It is shown to others, in browsers, too.
            if !link.starts_with("https://") && !link.starts_with("http://") {
                return Err(ApiError::bad_request(format!("A link begins with https:// or http://, not {link:?}")));
            }
        }
        collection.public = self.public.unwrap_or(collection.public);
        let policy = &mut collection.policy;
        for (field, wish) in [
            (&mut policy.force_encryption, self.force_encryption),
            (&mut policy.force_verify, self.force_verify),
            (&mut policy.disable_verify, self.disable_verify),
            (&mut policy.disable_anonymous_writes, self.disable_anonymous_writes),
            (&mut policy.data_access, self.data_access),
        ] {
            *field = wish.unwrap_or(*field);
        }
        if policy.force_verify && policy.disable_verify {
            return Err(ApiError::bad_request("Copies are either always or never verified, not both"));
        }
        for (field, wish) in [
            (&mut policy.max_concurrency, self.max_concurrency),
            (&mut policy.preferred_concurrency, self.preferred_concurrency),
            (&mut policy.max_parallelism, self.max_parallelism),
            (&mut policy.preferred_parallelism, self.preferred_parallelism),
        ] {
            *field = wish.unwrap_or(*field);
        }
        if let Some(rate) = self.max_rate {
            if rate == Some(0) {
                return Err(ApiError::bad_request(
                    "`max_rate` is at least one byte a second; pause what is not to go on",
                ));
            }
            policy.max_rate = rate;
        }
        if let Some(directory) = self.default_directory {
            policy.default_directory = directory.filter(|text| !text.is_empty()).map(directory_of).transpose()?;
        }
        if let Some(network_use) = self.network_use {
            policy.network_use = network_use.map(network_use_of).transpose()?;
        }
        collection.subscription = self.subscription_id.unwrap_or(collection.subscription);
        Ok(())
    }
}

fn display_name(name: &str) -> Result<String, ApiError> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(ApiError::bad_request(format!(
            "A display_name has 1 to {LONGEST_NAME} characters, and no newlines"
        )));
    }
    Ok(name.to_owned())
}

fn text_of(text: String) -> Result<String, ApiError> {
    if text.chars().count() > LONGEST {
        return Err(ApiError::bad_request(format!("Texts about collections have at most {LONGEST} characters")));
    }
    Ok(text)
}

/// Keywords are a list for some clients, and a text with commas for others.
fn keywords(value: Value) -> Result<Vec<String>, ApiError> {
    let words: Vec<String> = match value {
        Value::String(text) => text.split(',').map(|word| word.trim().to_owned()).collect(),
        Value::Array(words) => words.iter().filter_map(Value::as_str).map(|word| word.trim().to_owned()).collect(),
        _ => return Err(ApiError::bad_request("`keywords` is a list, or a text with commas")),
    };
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    if words.len() > 100 || words.iter().any(|word| word.chars().count() > LONGEST_NAME) {
        return Err(ApiError::bad_request("These are too many or too long keywords"));
    }
    Ok(words)
}

fn directory_of(text: String) -> Result<String, ApiError> {
    if text.starts_with("/~/") || text == "~" || text == "$USER" {
        return Ok(text);
    }
    directory(&text)
}

fn network_use_of(text: String) -> Result<String, ApiError> {
    let known = ["normal", "minimal", "aggressive", "custom"].contains(&text.as_str());
    if known { Ok(text) } else { Err(ApiError::bad_request(format!("There is no network_use {text:?}"))) }
}

/// A directory of a collection: normal, with slashes at both ends.
///
/// # Errors
/// 400 for what is no absolute path.
pub(super) fn directory(path: &str) -> Result<String, ApiError> {
    let wrong = || ApiError::bad_request(format!("{path:?} is no absolute path of a directory"));
    let absolute = Some(path).filter(|path| path.starts_with('/') && !path.starts_with("/~")).ok_or_else(wrong)?;
    let path = normal(absolute, "/").map_err(|_| wrong())?;
    Ok(if path.ends_with('/') { path } else { path + "/" })
}

impl Service {
    fn blank(&self, kind: EntityType, owner: Uuid, name: &str) -> Result<Collection, ApiError> {
        let id = random_id()?;
        Ok(Collection {
            id,
            kind,
            owner,
            endpoint: id,
            host: None,
            base: "/".to_owned(),
            servers: Vec::new(),
            about: About { display_name: display_name(name)?, ..About::default() },
            policy: Policy::default(),
            public: false,
            subscription: None,
            admin_verified: None,
            manager_url: None,
            https_url: None,
            setup_key: None,
            created: self.clock.now(),
            last_accessed: None,
            deleted: false,
        })
    }

    /// A collection that nobody knows of yet, of a deployment and perhaps of a host; `base` is its root there.
    ///
    /// # Errors
    /// 400 for a name or path that is none.
    pub(crate) fn new_collection(
        &self,
        kind: EntityType,
        owner: Uuid,
        name: &str,
        endpoint: Uuid,
        host: Option<Uuid>,
        base: &str,
    ) -> Result<Collection, ApiError> {
        let blank = self.blank(kind, owner, name)?;
        Ok(Collection { endpoint, host, base: directory(base)?, ..blank })
    }

    /// Takes a collection away that has none on it any more, with its rules.
    ///
    /// # Errors
    /// 409 while collections depend on it.
    pub(crate) async fn take_away(&self, mut found: Versioned<Collection>, actor: Uuid) -> Result<(), ApiError> {
        let id = found.record.id;
        for key in ["endpoint", "host"] {
            let below = self.all_by_key::<Collection>(key, &id.to_string()).await?;
            if below.iter().any(|other| other.record.id != id && !other.record.deleted) {
                return Err(ApiError::conflict("Collections depend on it: delete them first"));
            }
        }
        found.record.deleted = true;
        found.record.servers.clear();
        let mut batch = Batch::new().update(&found);
        for rule in self.rules_of(id).await? {
            batch = batch.delete_id::<super::records::AccessRule>(rule.id.to_string());
        }
        for rule in self.rates_at(id).await? {
            batch = batch.delete(&rule);
        }
        let entry = self.entry(actor, "collection.delete", id);
        Ok(self.store.apply(batch.audit(entry)).await?)
    }

    /// A deployment with its servers.
    ///
    /// # Errors
    /// 400 for a name that is none.
    pub async fn add_endpoint(&self, owner: Uuid, name: &str, servers: Vec<Server>) -> Result<Collection, ApiError> {
        self.add_endpoint_by(owner, owner, name, servers).await
    }

    async fn add_endpoint_by(
        &self,
        by: Uuid,
        owner: Uuid,
        name: &str,
        servers: Vec<Server>,
    ) -> Result<Collection, ApiError> {
        let mut endpoint = self.blank(EntityType::Endpoint, owner, name)?;
        (endpoint.servers, endpoint.public) = (servers, true);
        self.add_collection_record(&endpoint, by).await?;
        Ok(endpoint)
    }

    /// A mapped collection of a deployment: `base` is a path at its servers.
    ///
    /// # Errors
    /// 400 for a name or path that is none, 404 for a deployment that is none.
    pub async fn add_mapped(
        &self,
        endpoint: Uuid,
        owner: Uuid,
        name: &str,
        base: &str,
    ) -> Result<Collection, ApiError> {
        let endpoint = self.collection(endpoint).await?;
        if endpoint.record.kind != EntityType::Endpoint {
            return Err(ApiError::bad_request("Mapped collections are made on endpoints only"));
        }
        let mut collection = self.blank(EntityType::Mapped, owner, name)?;
        (collection.base, collection.endpoint, collection.public) = (directory(base)?, endpoint.record.id, true);
        collection.policy.allow_guests = true;
        self.add_collection_record(&collection, owner).await?;
        Ok(collection)
    }

    pub(crate) async fn add_collection_record(&self, collection: &Collection, by: Uuid) -> Result<(), ApiError> {
        let (name, kind) = (&collection.about.display_name, collection.kind);
        let detail = json!({
            "name": name, "kind": kind, "owner": collection.owner, "endpoint": collection.endpoint, "base": collection.base,
        });
        let entry = self.entry(by, "collection.create", collection.id).detail(detail);
        Ok(self.store.apply(Batch::new().insert(collection).audit(entry)).await?)
    }

    pub(crate) fn entry(&self, actor: Uuid, action: &str, subject: Uuid) -> AuditEntry {
        AuditEntry::new(self.clock.now(), actor.to_string(), action, subject.to_string())
    }

    /// Says which servers a deployment, or somebody's own machine, has now.
    ///
    /// # Errors
    /// 404 for an endpoint that is none.
    pub async fn set_servers(&self, endpoint: Uuid, servers: Vec<Server>) -> Result<(), ApiError> {
        let mut found = self.collection(endpoint).await?;
        found.record.servers = servers;
        Ok(self.store.apply(Batch::new().update(&found)).await?)
    }

    pub(crate) async fn may_make(&self, actor: &Actor) -> Result<(), ApiError> {
        let own = self.all_by_key::<Collection>("owner", &actor.identity.to_string()).await?;
        if own.iter().filter(|found| !found.record.deleted).count() >= MOST {
            return Err(ApiError::denied(format!(
                "You have {MOST} endpoints and collections, as many as anybody may have"
            )));
        }
        Ok(())
    }
}

/// What was made.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Made {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    code: &'static str,
    message: String,
    id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    globus_connect_setup_key: Option<String>,
    request_id: String,
    resource: String,
}

impl Made {
    fn new(place: &Place, id: Uuid, key: Option<String>) -> Self {
        let (request_id, resource) = (place.request.to_string(), place.resource.clone());
        let message = "Endpoint created successfully".to_owned();
        let (data_type, code) = ("endpoint_create_result", "Created");
        Self { data_type, code, message, id, globus_connect_setup_key: key, request_id, resource }
    }
}

/// `POST /endpoint`: on the caller's own machine. Deployments are made by administrators.
pub(super) async fn create(call: Call<ByUser, Json<EndpointWish>>) -> Result<Created<Made>, ApiError> {
    let wish = call.body.0;
    if wish.is_globus_connect != Some(true) {
        return Err(ApiError::denied(
            "Endpoints other than on one's own machine are made by administrators of this service",
        ));
    }
    call.service.may_make(&call.caller).await?;
    let name = wish.display_name.clone().unwrap_or_default();
    let mut collection = call.service.blank(EntityType::Personal, call.caller.identity, &name)?;
    collection.policy.allow_guests = true;
    wish.apply(&mut collection)?;
    let key = random("wk_")?;
    collection.setup_key = Some(digest(&key));
    call.service.add_collection_record(&collection, call.caller.identity).await?;
    Ok(Answer(Made::new(&call.place, collection.id, Some(key))))
}

/// A guest collection that is to be.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct GuestWish {
    host_endpoint: Uuid,
    host_path: String,
    #[serde(flatten)]
    about: EndpointWish,
}

/// `POST /shared_endpoint`: a directory of a mapped collection, shared in the caller's name.
pub(super) async fn create_guest(call: Call<ByUser, Json<GuestWish>>) -> Result<Created<Made>, ApiError> {
    let (service, actor, wish) = (&call.service, &call.caller, call.body.0);
    service.may_make(actor).await?;
    let (host, _) = service.visible(actor, wish.host_endpoint).await?;
    let host = host.record;
    let kind = match host.kind {
        EntityType::Mapped => EntityType::Guest,
        EntityType::Personal if host.owner == actor.identity => EntityType::PersonalGuest,
        EntityType::Personal => {
            return Err(ApiError::denied("Only its owner shares directories of a personal endpoint"));
        }
        _ => return Err(ApiError::bad_request("Guest collections are made of mapped collections only")),
    };
    if !host.policy.allow_guests {
        return Err(ApiError::denied(format!("{} does not allow guest collections", host.about.display_name)));
    }
    if service.logins(&service.location(&host).await?).await?.is_stock() {
        let name = &host.about.display_name;
        return Err(ApiError::conflict(format!(
            "{name} is on stock servers, which cannot keep guests within a directory: nothing there is shared"
        )));
    }
    let name = wish.about.display_name.clone().unwrap_or_default();
    let mut guest = service.blank(kind, actor.identity, &name)?;
    (guest.host, guest.base, guest.endpoint) = (Some(host.id), directory(&wish.host_path)?, host.endpoint);
    wish.about.apply(&mut guest)?;
    service.add_collection_record(&guest, actor.identity).await?;
    Ok(Answer(Made::new(&call.place, guest.id, None)))
}

/// `GET /endpoint/{id}`.
pub(super) async fn show(call: Call<ByUser>) -> Result<Answer<EndpointDocument>, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    let (found, standing) = call.service.visible(&call.caller, id).await?;
    call.service.endpoint_document(&found.record, &standing).await.map(Answer)
}

/// A collection that the caller administers.
pub(super) async fn administered<I>(call: &Call<ByUser, I>) -> Result<Versioned<Collection>, ApiError> {
    managed(call, RoleName::Administrator).await
}

/// A collection on which the caller has a role.
pub(super) async fn managed<I>(call: &Call<ByUser, I>, role: RoleName) -> Result<Versioned<Collection>, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    let (found, standing) = call.service.visible(&call.caller, id).await?;
    standing.need(role)?;
    Ok(found)
}

/// A collection of which the caller may give others what a role lets them give.
pub(super) async fn given_away<I>(call: &Call<ByUser, I>, role: RoleName) -> Result<Versioned<Collection>, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    let (found, standing) = call.service.visible(&call.caller, id).await?;
    standing.need(role)?;
    if standing.may_give(&found.record, role) {
        return Ok(found);
    }
    Err(ApiError::denied(format!(
        "Only who has the role {} on this collection itself lets others in: roles of its deployment do not",
        role.name()
    )))
}

/// `PUT /endpoint/{id}`.
pub(super) async fn update(call: Call<ByUser, Json<EndpointWish>>) -> Result<Answer<Done>, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    let (mut found, standing) = call.service.visible(&call.caller, id).await?;
    standing.need(RoleName::Administrator)?;
    let before = found.record.clone();
    call.body.0.clone().apply(&mut found.record)?;
    standing.check_change(&before, &found.record)?;
    let entry = call.service.entry(call.caller.identity, "collection.update", found.record.id);
    call.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
    Ok(Answer(Done::new(&call.place, "Updated", "Endpoint updated successfully")))
}

/// `DELETE /endpoint/{id}`: one that has no collections any more.
pub(super) async fn delete(call: Call<ByUser>) -> Result<Answer<Done>, ApiError> {
    let found = administered(&call).await?;
    call.service.take_away(found, call.caller.identity).await?;
    Ok(Answer(Done::new(&call.place, "Deleted", "Endpoint deleted successfully")))
}

/// A subscription; for us a name only.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct SubscriptionWish {
    subscription_id: Option<Uuid>,
}

/// `PUT /endpoint/{id}/subscription`.
pub(super) async fn set_subscription(call: Call<ByUser, Json<SubscriptionWish>>) -> Result<Answer<Done>, ApiError> {
    let mut found = administered(&call).await?;
    found.record.subscription = call.body.0.subscription_id;
    let entry = call.service.entry(call.caller.identity, "collection.update", found.record.id);
    let entry = entry.detail(json!({"subscription_id": found.record.subscription}));
    call.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
    Ok(Answer(Done::new(&call.place, "Updated", "Endpoint updated successfully")))
}

/// Whether its administrators have verified it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct VerifiedWish {
    subscription_admin_verified: bool,
}

/// `PUT /endpoint/{id}/subscription_admin_verified`.
pub(super) async fn set_verified(call: Call<ByUser, Json<VerifiedWish>>) -> Result<Answer<Done>, ApiError> {
    let mut found = administered(&call).await?;
    found.record.admin_verified = Some(call.body.0.subscription_admin_verified);
    let entry = call.service.entry(call.caller.identity, "collection.update", found.record.id);
    let entry = entry.detail(json!({"subscription_admin_verified": found.record.admin_verified}));
    call.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
    Ok(Answer(Done::new(&call.place, "Updated", "Endpoint updated successfully")))
}

/// Servers of an endpoint.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct ServerList {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    endpoint: Uuid,
    #[serde(rename = "DATA")]
    data: Vec<ServerDocument>,
}

/// `GET /endpoint/{id}/server_list`.
pub(super) async fn servers(call: Call<ByUser>) -> Result<Answer<ServerList>, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    let (found, _) = call.service.visible(&call.caller, id).await?;
    let data = call.service.server_documents(&found.record).await?;
    Ok(Answer(ServerList { data_type: "endpoint_server_list", endpoint: id, data }))
}

/// `GET /endpoint/{id}/server/{server}`.
pub(super) async fn server(call: Call<ByUser>) -> Result<Answer<ServerDocument>, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    let (found, _) = call.service.visible(&call.caller, id).await?;
    let number = call.path.text("server").to_owned();
    let servers = call.service.server_documents(&found.record).await?;
    let server = servers.into_iter().find(|server| server.id.to_string() == number);
    server.map(Answer).ok_or_else(|| ApiError::not_found("ServerNotFound", format!("It has no server {number}")))
}

/// A deployment that an administrator wants.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct DeploymentWish {
    /// Its name.
    display_name: String,
    /// Its servers: `whimbrel://host:port`, `gsiftp://host`, `ftp://host`.
    #[serde(default)]
    servers: Vec<String>,
    /// Whose it is; else the caller's.
    owner: Option<Uuid>,
}

/// `POST /v2/whimbrel/endpoints`, for administrators.
pub(super) async fn create_deployment(
    call: Call<Admin<TransferAll>, Json<DeploymentWish>>,
) -> Result<Created<Made>, ApiError> {
    let wish = call.body.0;
    let servers: Vec<_> = wish.servers.into_iter().map(|url| Server::at(url, None)).collect();
    let first = servers.first().map(|server| Logins::of_url(&server.url));
    servers.iter().try_for_each(|server| grid::check_url(&server.url, first))?;
    let owner = wish.owner.unwrap_or(call.caller.identity);
    let made = call.service.add_endpoint_by(call.caller.identity, owner, &wish.display_name, servers).await?;
    Ok(Answer(Made::new(&call.place, made.id, None)))
}

/// A mapped collection that somebody wants.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct MappedWish {
    /// Its name.
    display_name: String,
    /// Its root: a path at the servers.
    base_path: String,
    /// Whether everybody may find it; default: yes.
    public: Option<bool>,
}

/// `POST /v2/whimbrel/endpoints/{id}/collections`, for administrators of the endpoint.
pub(super) async fn create_mapped(call: Call<ByUser, Json<MappedWish>>) -> Result<Created<Made>, ApiError> {
    let endpoint = administered(&call).await?;
    let (service, wish) = (&call.service, &call.body.0);
    let made =
        service.add_mapped(endpoint.record.id, call.caller.identity, &wish.display_name, &wish.base_path).await?;
    if wish.public == Some(false) {
        let mut found = service.collection(made.id).await?;
        found.record.public = false;
        service.store.apply(Batch::new().update(&found)).await?;
    }
    Ok(Answer(Made::new(&call.place, made.id, None)))
}
