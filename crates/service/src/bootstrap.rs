//! The first things of a new service: nothing is open before somebody has made them, and nobody can make them over the network.

use uuid::Uuid;

use crate::Service;
use crate::audit::SERVICE;
use crate::auth::clients::{MadeClient, NewClient};
use crate::auth::identities::NewIdentity;
use crate::auth::records::{Client, Identity, Role};
use crate::http::ApiError;
use crate::store::{AuditEntry, Batch};

impl Service {
    /// Whether nobody can do anything yet: there is no client.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn is_new(&self) -> Result<bool, ApiError> {
        Ok(self.store.list::<Client>(None, 1).await?.is_empty())
    }

    /// A client that acts in its own name, for scripts; an administrator of the service, if wanted. Its secret is told once.
    ///
    /// # Errors
    /// 400 for a name that is none.
    pub async fn bootstrap_client(&self, name: &str, admin: bool) -> Result<MadeClient, ApiError> {
        let made = self
            .add_client(NewClient {
                name: name.to_owned(),
                role: Role::Program,
                confidential: true,
                logins: false,
                template: false,
                redirects: Vec::new(),
                id: None,
            })
            .await?;
        if admin {
            self.set_admin(made.client.id, true).await?;
        }
        Ok(made)
    }

    /// A client for an orchestrator. Its secret is told once.
    ///
    /// # Errors
    /// 400 for a name that is none.
    pub async fn bootstrap_orchestrator(&self, name: &str) -> Result<MadeClient, ApiError> {
        self.add_client(NewClient::orchestrator(name)).await
    }

    /// A person with a password.
    ///
    /// # Errors
    /// 400 for a name or password that is none, 409 for a name that somebody has.
    pub async fn bootstrap_person(&self, username: &str, password: &str, admin: bool) -> Result<Identity, ApiError> {
        let (username, password) = (username.to_owned(), Some(password.to_owned()));
        self.add_identity(NewIdentity { username, password, admin, ..NewIdentity::default() }).await
    }

    /// Makes an identity an administrator, or one no longer.
    ///
    /// # Errors
    /// 404 for nobody.
    pub async fn set_admin(&self, identity: Uuid, admin: bool) -> Result<(), ApiError> {
        let found = self.store.get::<Identity>(&identity.to_string()).await?;
        let mut found =
            found.ok_or_else(|| ApiError::not_found("UserNotFound", format!("Nobody has the id {identity}")))?;
        found.record.admin = admin;
        let action = if admin { "identity.admin" } else { "identity.no_admin" };
        let entry = AuditEntry::new(self.clock.now(), SERVICE, action, identity.to_string());
        self.store.apply(Batch::new().update(&found).audit(entry)).await?;
        self.auth.forget();
        Ok(())
    }
}
