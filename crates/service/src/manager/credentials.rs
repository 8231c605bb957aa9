//! Which account a user's files are handled as, where they have more than one: a name, no secret.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::document::{POSIX, success, told};
use super::{Manager, derived, gateway_of, missing, needs_role, unprocessable};
use crate::Service;
use crate::auth::secrets::random_id;
use crate::endpoints::records::RoleName;
use crate::http::ApiError;
use crate::store::{Batch, Record, Versioned};

/// Longest name of an account, bytes.
const LONGEST: usize = 255;

/// The account that somebody wants to have at an endpoint. Whether they may, its servers decide at each login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCredential {
    /// Its id.
    pub id: Uuid,
    /// The endpoint.
    pub endpoint: Uuid,
    /// Whose.
    pub identity: Uuid,
    /// The account; `None`: the usual one.
    pub username: Option<String>,
    /// What they call it.
    pub display_name: Option<String>,
}

impl Record for UserCredential {
    const KIND: &'static str = "user_credential";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("endpoint", self.endpoint.to_string())]
    }

    fn unique_keys(&self) -> Vec<(&'static str, String)> {
        vec![("whose", whose(self.endpoint, self.identity))]
    }
}

fn whose(endpoint: Uuid, identity: Uuid) -> String {
    format!("{endpoint}|{identity}")
}

/// What somebody says of theirs.
#[derive(Debug, Deserialize)]
pub(super) struct CredentialWish {
    identity_id: Option<Uuid>,
    storage_gateway_id: Option<Uuid>,
    #[serde(default, deserialize_with = "given")]
    username: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    display_name: Option<Option<String>>,
}

/// Tells what is `null` from what is not there.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Service {
    /// The account that somebody has chosen at an endpoint.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn chosen_account(&self, endpoint: Uuid, identity: Uuid) -> Result<Option<String>, ApiError> {
        let found = self.store.find::<UserCredential>("whose", &whose(endpoint, identity), None, 1).await?;
        Ok(found.into_iter().next().and_then(|found| found.record.username))
    }
}

impl Manager<'_> {
    /// All that the caller may see: their own, and those of others for who administers the endpoint. Who has said nothing has the
    /// usual account.
    pub(super) async fn list_credentials(&self) -> Result<Value, ApiError> {
        if let Some(gateway) = self.query.get("storage_gateway") {
            self.check_gateway(Some(Uuid::try_parse(gateway).map_err(|_| missing("storage gateway"))?))?;
        }
        let all = self.endpoint_as(RoleName::Administrator).await.is_ok();
        let (endpoint, identity) = (self.endpoint.record.id, self.actor.identity);
        let found = self.service.all_by_key::<UserCredential>("endpoint", &endpoint.to_string()).await?;
        let found = found.into_iter().map(|found| found.record);
        let mut shown: Vec<_> = found.filter(|one| all || one.identity == identity).collect();
        if !shown.iter().any(|one| one.identity == identity) {
            shown.insert(0, self.usual());
        }
        Ok(success(shown.iter().map(credential).collect()))
    }

    /// That of somebody who has said nothing.
    fn usual(&self) -> UserCredential {
        let (endpoint, identity) = (self.endpoint.record.id, self.actor.identity);
        let id = derived("user credential", &[endpoint, identity]);
        UserCredential { id, endpoint, identity, username: None, display_name: None }
    }

    /// One of the caller's own.
    ///
    /// # Errors
    /// 404 for anything else.
    pub(super) async fn own_credential(&self, id: Uuid) -> Result<UserCredential, ApiError> {
        let found = self.stored(id).await?.map(|found| found.record).filter(|one| one.identity == self.actor.identity);
        let usual = self.usual();
        match found {
            Some(found) => Ok(found),
            None if usual.id == id => Ok(usual),
            None => Err(missing("user credential")),
        }
    }

    async fn stored(&self, id: Uuid) -> Result<Option<Versioned<UserCredential>>, ApiError> {
        let found = self.service.store.get::<UserCredential>(&id.to_string()).await?;
        Ok(found.filter(|found| found.record.endpoint == self.endpoint.record.id))
    }

    /// One that the caller may change.
    async fn changeable(&self, id: &str) -> Result<Versioned<UserCredential>, ApiError> {
        let id = Uuid::try_parse(id).map_err(|_| missing("user credential"))?;
        let found = self.stored(id).await?.ok_or_else(|| missing("user credential"))?;
        let theirs = found.record.identity == self.actor.identity;
        if theirs || self.endpoint_as(RoleName::Administrator).await.is_ok() {
            return Ok(found);
        }
        Err(missing("user credential"))
    }

    pub(super) async fn show_credential(&self, id: &str) -> Result<Value, ApiError> {
        let parsed = Uuid::try_parse(id).map_err(|_| missing("user credential"))?;
        let found = match self.own_credential(parsed).await {
            Ok(own) => own,
            Err(_) => self.changeable(id).await?.record,
        };
        Ok(success(vec![credential(&found)]))
    }

    pub(super) async fn create_credential(&self, wish: CredentialWish) -> Result<Value, ApiError> {
        self.check_gateway(wish.storage_gateway_id)?;
        let identity = wish.identity_id.unwrap_or(self.actor.identity);
        if identity != self.actor.identity {
            // An account that somebody else chooses would move their files.
            return Err(needs_role(RoleName::Administrator));
        }
        let mut made = UserCredential { id: random_id()?, identity, ..self.usual() };
        wish.apply(&mut made)?;
        let entry = self.service.entry(self.actor.identity, "user_credential.create", made.endpoint);
        let stored = self.service.store.apply(Batch::new().insert(&made).audit(entry)).await;
        stored.map_err(|error| match error {
            crate::store::StoreError::Conflict(_) => {
                ApiError::conflict("You have a user credential at this endpoint: change or delete that one")
            }
            other => other.into(),
        })?;
        Ok(told(
            "success",
            &format!("Created User Credential {}", made.id),
            vec![json!({
                "DATA_TYPE": "user_credential#1.0.0", "id": made.id,
            })],
        ))
    }

    pub(super) async fn update_credential(&self, id: &str, wish: CredentialWish) -> Result<Value, ApiError> {
        let mut found = self.changeable(id).await?;
        self.check_gateway(wish.storage_gateway_id)?;
        if found.record.identity != self.actor.identity
            || wish.identity_id.is_some_and(|id| id != found.record.identity)
        {
            return Err(unprocessable("Whose a user credential is does not change, and only they change it"));
        }
        wish.apply(&mut found.record)?;
        let entry = self.service.entry(self.actor.identity, "user_credential.update", found.record.endpoint);
        self.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
        Ok(told("success", &format!("Updated User Credential {id}"), Vec::new()))
    }

    pub(super) async fn delete_credential(&self, id: &str) -> Result<Value, ApiError> {
        let found = self.changeable(id).await?;
        let entry = self.service.entry(self.actor.identity, "user_credential.delete", found.record.endpoint);
        self.service.store.apply(Batch::new().delete(&found).audit(entry)).await?;
        Ok(told("success", &format!("Deleted User Credential {id}"), Vec::new()))
    }
}

impl CredentialWish {
    fn apply(self, record: &mut UserCredential) -> Result<(), ApiError> {
        let fits = |name: &Option<String>| {
            name.as_ref().is_none_or(|name| (1..=LONGEST).contains(&name.len()) && !name.chars().any(char::is_control))
        };
        if let Some(username) = self.username {
            let is_name = |name: &String| !name.contains(['/', ':']);
            if !fits(&username) || !username.as_ref().is_none_or(is_name) {
                return Err(unprocessable("The username is no name of an account"));
            }
            record.username = username;
        }
        if let Some(name) = self.display_name {
            if !fits(&name) {
                return Err(unprocessable("The display_name is empty or too long"));
            }
            record.display_name = name;
        }
        Ok(())
    }
}

fn credential(of: &UserCredential) -> Value {
    json!({
        "DATA_TYPE": "user_credential#1.0.0", "id": of.id, "identity_id": of.identity, "connector_id": POSIX,
        "storage_gateway_id": gateway_of(of.endpoint), "username": of.username, "display_name": of.display_name,
        "invalid": false, "provisioned": true, "deleted": false, "policies": {},
    })
}
