//! Servers that know nothing of this service: what is shown there, and the proxies that users register for it.
//!
//! Stock GridFTP servers take certificates. The service makes a key and a request, the user signs a proxy for it wherever their own key
//! is, and the proxy is kept sealed until its end: for them and that endpoint only, and told to nobody but an orchestrator with their task.

mod records;
mod routes;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use whimbrel_engine::dispatch::{self, Credential};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::Status;
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::Service;
use crate::clock::iso;
use crate::desk::{Halt, Sites as _};
use crate::endpoints::Location;
use crate::endpoints::records::Collection;
use crate::http::ApiError;
use crate::store::{Batch, Record as _, TaskQuery, Versioned, time_key};

pub use records::{CredentialRequest, GridCredential};
pub use routes::routes;

const OP: &str = "log in at the collection's servers";

/// Records that are looked up in one go.
const PAGE: u32 = 500;

/// Seconds after its end for which it is still known that there was a credential: a week.
const REMEMBERED: i64 = 7 * 24 * 3600;

/// What servers are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Logins {
    /// Tokens of this service: our own servers.
    #[default]
    Token,
    /// The user's proxy: servers of the grid, by `gsiftp://`.
    Proxy,
    /// Nothing: servers for anybody, by `ftp://`.
    Nothing,
}

impl Logins {
    /// What a server of this URL is shown.
    pub fn of_url(url: &str) -> Self {
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("gsiftp") => Self::Proxy,
            Some("ftp") => Self::Nothing,
            _ => Self::Token,
        }
    }

    /// Whether servers know nothing of this service: they neither promise what ours do, nor keep anybody within rules.
    pub fn is_stock(self) -> bool {
        self != Self::Token
    }
}

/// Refuses a server's URL that is none, or that goes with another kind of login than those of its endpoint.
///
/// # Errors
/// 400 and 409.
pub fn check_url(url: &str, others: Option<Logins>) -> Result<(), ApiError> {
    let known = ["whimbrel://", "ftps://", "gsiftp://", "ftp://"].iter().any(|scheme| url.starts_with(scheme));
    if !known || url.len() > 512 || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ApiError::bad_request(format!("{url:?} is no server as in gsiftp://dtn.example.org:2811")));
    }
    match others {
        Some(others) if others != Logins::of_url(url) => Err(mixed()),
        _ => Ok(()),
    }
}

/// 409: servers of an endpoint are reached in one way.
pub fn mixed() -> ApiError {
    ApiError::conflict("The endpoint's servers are reached in another way: all of them are stock servers, or none is")
}

/// The command with which a user registers a credential for a collection.
pub fn cure(collection: &Collection) -> String {
    cure_for(collection.id, &collection.about.display_name)
}

/// The same by id and name.
pub fn cure_for(id: Uuid, name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || " -_.,:".contains(c);
    if name.chars().all(plain) {
        return format!("whimbrel endpoint credential '{name}'");
    }
    format!("whimbrel endpoint credential {id}")
}

impl Service {
    /// What the servers of an endpoint are shown; `None`: it has none yet.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn logins_at(&self, endpoint: Uuid, servers: &[dispatch::Server]) -> Result<Option<Logins>, ApiError> {
        if let Some(server) = servers.first() {
            return Ok(Some(Logins::of_url(&server.url)));
        }
        let servers = self.servers(endpoint).await?;
        Ok(servers.iter().find_map(crate::servers::Server::url).map(|url| Logins::of_url(&url)))
    }

    /// What is shown where a collection's files are.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn logins(&self, location: &Location) -> Result<Logins, ApiError> {
        Ok(self.logins_at(location.endpoint, &location.servers).await?.unwrap_or_default())
    }

    /// The credential of somebody for an endpoint, good or not.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn grid_credential(
        &self,
        endpoint: Uuid,
        identity: Uuid,
    ) -> Result<Option<Versioned<GridCredential>>, ApiError> {
        Ok(self.store.get(&records::whose(endpoint, identity)).await?)
    }

    /// The credential with which somebody is let in at stock servers of a collection now.
    ///
    /// # Errors
    /// `CredentialMissing` and `CredentialExpired`, with the command that helps; `NotSupported`: they would act in another's name.
    pub(crate) async fn good_credential(
        &self,
        collection: &Collection,
        location: &Location,
        identity: Uuid,
    ) -> Result<GridCredential, Fault> {
        let found = self.grid_credential(location.endpoint, identity).await;
        let found = found.map_err(|error| fault(FaultCode::ServerBusy, collection).detail(error.to_string()))?;
        let Some(GridCredential { until, .. }) = found.as_ref().map(|found| &found.record) else {
            let detail = format!("you have registered no proxy for its servers; to do so: {}", cure(collection));
            return Err(fault(FaultCode::CredentialMissing, collection).detail(detail));
        };
        if *until < self.clock.now() {
            let detail = format!("your proxy has ended at {}; to register another: {}", iso(*until), cure(collection));
            return Err(fault(FaultCode::CredentialExpired, collection).detail(detail));
        }
        found.map(|found| found.record).ok_or_else(|| fault(FaultCode::Internal, collection))
    }

    /// What stock servers are shown.
    ///
    /// # Errors
    /// As [`Service::good_credential`].
    pub(crate) async fn shown_at_stock(
        &self,
        logins: Logins,
        collection: &Collection,
        location: &Location,
        identity: Uuid,
    ) -> Result<Credential, Fault> {
        refuse_guests(collection, location)?;
        if logins != Logins::Proxy {
            return Ok(Credential::None);
        }
        let credential = self.good_credential(collection, location, identity).await?;
        let pem = self.store.unseal(GridCredential::KIND, &credential.id(), &credential.sealed).map_err(Fault::from)?;
        let pem = String::from_utf8(pem.to_vec()).map_err(|_| fault(FaultCode::Internal, collection))?;
        Ok(Credential::Proxy { pem })
    }

    /// Lets the tasks go on that waited for a credential and have another one now; those of one owner, or of all.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn heed_credentials(&self, owner: Option<Uuid>) -> Result<(), ApiError> {
        let query = TaskQuery { owner, statuses: vec![Status::Inactive], ..TaskQuery::default() };
        let waiting = self.store.all_tasks(query).await?;
        for task in &waiting {
            let goes_on = match self.basis(task).await {
                // What was refused by a server would be refused again: only another credential helps.
                Ok(basis) => task.basis.as_ref() != Some(&basis),
                // Whoever gives it out next ends it.
                Err(Halt::Fault(fault)) => !fault.is_temporary(),
                Err(Halt::Credential(_) | Halt::Paused(_)) => false,
            };
            if goes_on {
                self.store.activate(task.id, self.clock.now()).await?;
            }
        }
        if !waiting.is_empty() {
            self.desk.ring();
        }
        Ok(())
    }

    /// Forgets credentials that ended a week ago, and requests that nobody has answered.
    ///
    /// # Errors
    /// 503 without the store; what was forgotten by then stays so.
    pub async fn forget_credentials(&self) -> Result<(), ApiError> {
        let now = self.clock.now();
        let ended = time_key(Timestamp::from_secs(now.secs.saturating_sub(REMEMBERED)));
        for found in self.store.find_until::<GridCredential>("ends", &ended, PAGE).await? {
            self.store.apply(Batch::new().delete(&found)).await?;
        }
        for found in self.store.find_until::<CredentialRequest>("ends", &time_key(now), PAGE).await? {
            self.store.apply(Batch::new().delete(&found)).await?;
        }
        Ok(())
    }
}

/// Guests act in the name of who shares: a stock server would let them do whatever that account may, by way of a link.
pub(crate) fn refuse_guests(collection: &Collection, location: &Location) -> Result<(), Fault> {
    if location.sharer.is_none() {
        return Ok(());
    }
    let detail = "its servers cannot keep guests within a directory, so that nothing there is shared";
    Err(fault(FaultCode::NotSupported, collection).detail(detail))
}

fn fault(code: FaultCode, collection: &Collection) -> Fault {
    Fault::new(code, OP).side(Side::Service).subject(&collection.about.display_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_follows_from_the_url() {
        assert_eq!(Logins::of_url("gsiftp://a:1"), Logins::Proxy);
        assert_eq!(Logins::of_url("ftp://a"), Logins::Nothing);
        assert!(!Logins::of_url("whimbrel://a").is_stock() && !Logins::of_url("ftps://a").is_stock());
        assert!(check_url("gsiftp://a:1", Some(Logins::Proxy)).is_ok() && check_url("ftp://a", None).is_ok());
        for (url, others) in
            [("gsiftp://a", Some(Logins::Nothing)), ("sshftp://a", None), ("/a", None), ("ftp://a b", None)]
        {
            assert!(check_url(url, others).is_err(), "{url}");
        }
    }

    #[test]
    fn a_command_is_one_that_can_be_pasted() {
        assert_eq!(cure_for(Uuid::nil(), "Lab data"), "whimbrel endpoint credential 'Lab data'");
        assert!(cure_for(Uuid::nil(), "it's; rm").ends_with("00000000-0000-0000-0000-000000000000"));
    }
}
