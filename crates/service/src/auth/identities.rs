//! Who is who: identities, consents, groups.

use std::collections::HashMap;
use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::records::{Consent, Identity};
use super::rules::{Admin, User, UserOrClient};
use super::scope::{OpenId, TransferAll, ViewConsents, ViewIdentitySet};
use super::secrets::{hash_password, random_id};
use crate::Service;
use crate::audit::SERVICE;
use crate::clock::iso;
use crate::http::{Answer, ApiError, Call, Created, Json};
use crate::store::{AuditEntry, Batch};

/// Most identities of one question.
const MOST: usize = 200;

/// What people are called, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<Uuid, Option<String>>);

impl Names {
    /// An identity's name; `None`: there is none.
    pub(crate) async fn of(&mut self, service: &Service, id: Uuid) -> Result<Option<String>, ApiError> {
        if let Some(known) = self.0.get(&id) {
            return Ok(known.clone());
        }
        let found = service.identity(id).await?.map(|identity| identity.username);
        Ok(self.0.entry(id).or_insert(found).clone())
    }
}

impl Service {
    /// An identity.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn identity(&self, id: Uuid) -> Result<Option<Identity>, ApiError> {
        Ok(self.store.get::<Identity>(&id.to_string()).await?.map(|found| found.record))
    }

    /// An identity by its name, in any case.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn identity_by_name(&self, username: &str) -> Result<Option<Identity>, ApiError> {
        let found = self.store.find::<Identity>("username", &username.to_lowercase(), None, 1).await?;
        Ok(found.into_iter().next().map(|found| found.record))
    }

    /// A new identity, as it was asked for.
    ///
    /// # Errors
    /// 400 for a name that is none, 409 for one that somebody has.
    pub async fn add_identity(&self, new: NewIdentity) -> Result<Identity, ApiError> {
        self.add_identity_by(SERVICE, new).await
    }

    /// The same in somebody's name.
    async fn add_identity_by(&self, by: &str, new: NewIdentity) -> Result<Identity, ApiError> {
        let identity = self.identity_of(new).await?;
        let detail =
            json!({"username": identity.username, "admin": identity.admin, "password": identity.password.is_some()});
        let entry = AuditEntry::new(self.clock.now(), by, "identity.create", identity.id.to_string()).detail(detail);
        self.store.apply(Batch::new().insert(&identity).audit(entry)).await?;
        Ok(identity)
    }

    /// A new identity that is not kept yet.
    pub(super) async fn identity_of(&self, new: NewIdentity) -> Result<Identity, ApiError> {
        let username = new.username.trim().to_lowercase();
        let fine = username.split_once('@').is_some_and(|(name, domain)| !name.is_empty() && !domain.is_empty());
        if !fine || username.len() > 255 || username.chars().any(|sign| sign.is_control() || sign.is_whitespace()) {
            return Err(ApiError::bad_request(format!("A username is name@domain, not {username:?}")));
        }
        let password = match new.password {
            Some(password) => Some(hash_password(password).await?),
            None => None,
        };
        Ok(Identity {
            id: random_id()?,
            name: new.name.unwrap_or_else(|| username.clone()),
            username,
            email: new.email,
            organization: new.organization,
            password,
            admin: new.admin,
            disabled: false,
            elsewhere: None,
            created: self.clock.now(),
        })
    }
}

/// An identity that is to be.
#[derive(Debug, Clone, Default, serde::Deserialize, JsonSchema)]
pub struct NewIdentity {
    /// `name@domain`.
    pub username: String,
    /// What people call it; else the username.
    pub name: Option<String>,
    /// Where to write to.
    pub email: Option<String>,
    /// Whom it belongs to.
    pub organization: Option<String>,
    /// A password, for logins in a browser.
    pub password: Option<String>,
    /// Administers the whole service.
    #[serde(default)]
    pub admin: bool,
}

/// An identity as others see it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct IdentityDocument {
    id: Uuid,
    username: String,
    name: String,
    email: Option<String>,
    organization: Option<String>,
    /// `used`, `unused` (nobody has logged in as it), or `closed`.
    status: &'static str,
    identity_type: &'static str,
    identity_provider: Uuid,
}

impl From<Identity> for IdentityDocument {
    fn from(identity: Identity) -> Self {
        let status = match (identity.disabled, &identity.password, &identity.elsewhere) {
            (true, _, _) => "closed",
            (false, None, None) => "unused",
            (false, _, _) => "used",
        };
        let Identity { id, username, name, email, organization, .. } = identity;
        // One provider: this service.
        let identity_provider = Uuid::nil();
        Self { id, username, name, email, organization, status, identity_type: "login", identity_provider }
    }
}

/// Who one is (OpenID Connect Core §5.3).
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct UserInfo {
    sub: Uuid,
    preferred_username: String,
    name: String,
    email: Option<String>,
    organization: Option<String>,
    identity_provider: Uuid,
    identity_provider_display_name: &'static str,
    identity_set: Vec<LinkedIdentity>,
    last_authentication: Option<i64>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct LinkedIdentity {
    sub: Uuid,
    username: String,
    name: String,
    email: Option<String>,
    organization: Option<String>,
    identity_provider: Uuid,
    identity_provider_display_name: &'static str,
}

/// `GET /v2/oauth2/userinfo`.
pub(super) async fn userinfo(call: Call<User<OpenId>>) -> Result<Answer<UserInfo>, ApiError> {
    let gone = || ApiError::unauthenticated("The identity of the access token is gone");
    let identity = call.service.identity(call.caller.identity).await?.ok_or_else(gone)?;
    let Identity { id: sub, username, name, email, organization, .. } = identity;
    let (identity_provider, identity_provider_display_name) = (Uuid::nil(), "Whimbrel");
    let linked = LinkedIdentity {
        sub,
        username: username.clone(),
        name: name.clone(),
        email: email.clone(),
        organization: organization.clone(),
        identity_provider,
        identity_provider_display_name,
    };
    Ok(Answer(UserInfo {
        sub,
        preferred_username: username,
        name,
        email,
        organization,
        identity_provider,
        identity_provider_display_name,
        identity_set: vec![linked],
        last_authentication: None,
    }))
}

/// Identities that were found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Identities {
    identities: Vec<IdentityDocument>,
}

/// `GET /v2/api/identities?ids=` or `usernames=`: portals ask with their secret, everybody else with a token.
pub(super) async fn identities(call: Call<UserOrClient<ViewIdentitySet>>) -> Result<Answer<Identities>, ApiError> {
    let (service, query) = (&call.service, &call.query);
    let (ids, names): (Vec<_>, Vec<_>) = (query.list("ids").collect(), query.list("usernames").collect());
    if ids.is_empty() == names.is_empty() || ids.len() + names.len() > MOST {
        return Err(ApiError::bad_request(format!("Either `ids` or `usernames` is needed, at most {MOST} of them")));
    }
    let mut found = Vec::new();
    for id in ids {
        let id = Uuid::try_parse(id).map_err(|_| ApiError::bad_request(format!("{id:?} is no id of an identity")))?;
        found.extend(service.identity(id).await?);
    }
    for name in names {
        match service.identity_by_name(name).await? {
            Some(identity) => found.push(identity),
            None if query.flag("provision")? == Some(true) => found.push(service.provision(call.caller, name).await?),
            None => {}
        }
    }
    Ok(Answer(Identities { identities: found.into_iter().map(IdentityDocument::from).collect() }))
}

impl Service {
    /// An identity for somebody who is yet to come: access can be given to it already. Only names of other domains, for ours are given
    /// by administrators.
    async fn provision(&self, by: Uuid, username: &str) -> Result<Identity, ApiError> {
        let ours = username.to_lowercase().ends_with(&format!("@{}", self.config.domain.to_lowercase()));
        if ours || username.to_lowercase().ends_with(&self.client_domain()) {
            return Err(ApiError::bad_request(format!("There is no {username} here, and only administrators make it")));
        }
        let by = by.to_string();
        let most = super::PROVISIONED;
        if !self.auth.provisioned.lock().expect("nothing panics with it").ask(&by, Some(most), Instant::now()) {
            let text = format!("You may make {most} identities in an hour; try again in a minute");
            return Err(ApiError::too_many(60, text));
        }
        let new = NewIdentity { username: username.to_owned(), ..NewIdentity::default() };
        self.add_identity_by(&by, new).await
    }

    /// What the names of clients' own identities end with.
    pub(super) fn client_domain(&self) -> String {
        format!("@clients.{}", self.config.domain.to_lowercase())
    }
}

/// `POST /v2/api/identities`, for administrators.
pub(super) async fn add(
    call: Call<Admin<TransferAll>, Json<NewIdentity>>,
) -> Result<Created<IdentityDocument>, ApiError> {
    let by = call.caller.identity.to_string();
    call.service.add_identity_by(&by, call.body.0).await.map(IdentityDocument::from).map(Answer)
}

/// What an administrator changes about an identity.
#[derive(Debug, Clone, serde::Deserialize, JsonSchema)]
pub(super) struct IdentityChange {
    /// Closes the account, or opens it again.
    disabled: bool,
}

/// `PUT /v2/whimbrel/identities/{id}`, for administrators: closes an account. Its logins end at once, its tasks with the next look of
/// whoever carries them out, and what it shares is shared no more.
pub(super) async fn change(
    call: Call<Admin<TransferAll>, Json<IdentityChange>>,
) -> Result<Answer<IdentityDocument>, ApiError> {
    let id = call.path.id("id", "UserNotFound")?;
    if id == call.caller.identity {
        return Err(ApiError::bad_request("Nobody closes their own account: they could not open it again"));
    }
    call.service
        .set_disabled(id, call.body.0.disabled, call.caller.identity)
        .await
        .map(IdentityDocument::from)
        .map(Answer)
}

impl Service {
    /// Closes an account, or opens it again; `by` is who does it.
    ///
    /// # Errors
    /// 404 for nobody, 503 without the store.
    pub async fn set_disabled(&self, identity: Uuid, disabled: bool, by: Uuid) -> Result<Identity, ApiError> {
        let found = self.store.get::<Identity>(&identity.to_string()).await?;
        let mut found =
            found.ok_or_else(|| ApiError::not_found("UserNotFound", format!("Nobody has the id {identity}")))?;
        found.record.disabled = disabled;
        let action = if disabled { "identity.close" } else { "identity.open" };
        let entry = AuditEntry::new(self.clock.now(), by.to_string(), action, identity.to_string());
        self.store.apply(Batch::new().update(&found).audit(entry)).await?;
        if disabled {
            self.revoke_all(identity).await?;
        }
        Ok(found.record)
    }
}

/// `GET /v2/api/identities/{id}/consents`: one's own, as trees of numbered steps.
pub(super) async fn consents(call: Call<User<ViewConsents>>) -> Result<Answer<Value>, ApiError> {
    let identity = call.path.id("id", "UserNotFound")?;
    if identity != call.caller.identity {
        return Err(ApiError::denied("Consents are shown to who gave them"));
    }
    let all = call.query.flag("all")? == Some(true);
    let found = call.service.all_by_key::<Consent>("identity", &identity.to_string()).await?;
    let mut documents = Vec::new();
    for consent in found.into_iter().map(|found| found.record) {
        if all || consent.client == call.caller.client {
            documents.extend(consent_documents(&consent, documents.len()));
        }
    }
    Ok(Answer(json!({"consents": documents})))
}

fn consent_documents(consent: &Consent, first: usize) -> Vec<Value> {
    let number = |path: &[String]| consent.paths.iter().position(|known| known == path).map(|at| first + at + 1);
    let document = |(at, path): (usize, &Vec<String>)| {
        let steps: Vec<_> = (1..=path.len()).filter_map(|length| number(&path[..length])).collect();
        let scope = path.last().map_or("", String::as_str);
        let server = super::scope::resource_server(scope).unwrap_or_default();
        json!({
            "id": first + at + 1, "client": if path.len() == 1 { consent.client.to_string() } else { server.to_owned() },
            "scope": scope, "scope_name": scope, "effective_identity": consent.identity, "dependency_path": steps,
            "created": iso(consent.created), "updated": iso(consent.updated), "last_used": iso(consent.updated),
            "status": "approved", "allows_refresh": true, "auto_approved": false, "atomically_revocable": path.len() == 1,
        })
    };
    consent.paths.iter().enumerate().map(document).collect()
}
