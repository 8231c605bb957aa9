//! How collections are reached: by whom, at which servers, with which credential.

use std::collections::HashMap;
use std::sync::Mutex;

use uuid::Uuid;
use whimbrel_engine::dispatch::{Credential, Site};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::Service;
use crate::auth::Actor;
use crate::desk::{Pending, Sites};
use crate::endpoints::records::{AccessRule, Collection};
use crate::endpoints::{Location, Standing, Want, may};
use crate::http::ApiError;
use crate::task::{Task, TaskEnd};
use crate::tasks::submission::Ground;

/// Seconds for which a token for DTNs is good: tasks get new ones with each lease.
const TOKEN_LIFE: i64 = 6 * 3600;

const OP: &str = "reach the collection";

/// Seconds for which a token is used again: a site that is the same as before is one that orchestrators are logged in at.
const TOKEN_REUSE: i64 = 1800;

/// Most tokens that are remembered.
const MOST_TOKENS: usize = 10_000;

/// Endpoint, identity, root and what for.
type TokenOf = (Uuid, Uuid, String, Want);

/// Tokens for DTNs that were made a short while ago.
#[derive(Default)]
pub struct SiteTokens(Mutex<HashMap<TokenOf, (String, Timestamp)>>);

impl SiteTokens {
    fn get(&self, of: &TokenOf, now: Timestamp) -> Option<String> {
        let tokens = self.0.lock().expect("nothing panics with it");
        let (token, made) = tokens.get(of)?;
        (0..TOKEN_REUSE).contains(&(now.secs - made.secs)).then(|| token.clone())
    }

    fn keep(&self, of: TokenOf, token: String, now: Timestamp) {
        let mut tokens = self.0.lock().expect("nothing panics with it");
        if tokens.len() >= MOST_TOKENS {
            tokens.clear();
        }
        tokens.insert(of, (token, now));
    }
}

/// A collection as a caller may use it.
#[derive(Debug, Clone)]
pub struct Usable {
    /// The collection.
    pub collection: Collection,
    /// Where its paths lead.
    pub ground: Ground,
    location: Location,
    standing: Standing,
    rules: Vec<AccessRule>,
    now: Timestamp,
}

impl Usable {
    /// Refuses what the caller may not do with a normal path of the collection.
    ///
    /// # Errors
    /// 403, naming the path.
    pub fn permit(&self, path: &str, want: Want) -> Result<(), ApiError> {
        let Standing { who, own, .. } = &self.standing;
        if may(who, &self.collection, own, &self.rules, path, want, self.now) {
            return Ok(());
        }
        let verb = if want == Want::Read { "read" } else { "change" };
        let name = &self.collection.about.display_name;
        Err(ApiError::denied(format!("You may not {verb} {path} of {name}: ask who shares it for access")))
    }
}

impl Service {
    /// A collection whose files a caller may ask for; which of them, [`Usable::permit`] says.
    ///
    /// # Errors
    /// 404 for one that is not there, or that the caller may not know of; 409 for one without files.
    pub async fn usable(&self, id: Uuid, caller: &Actor) -> Result<Usable, ApiError> {
        let (found, standing) = self.visible(caller, id).await?;
        let collection = found.record;
        self.functional(&collection)?;
        let location = self.location(&collection).await?;
        let rules = if collection.kind.is_guest() { self.rules_of(id).await? } else { Vec::new() };
        let default_directory = collection.policy.default_directory.clone().unwrap_or_else(|| "/".into());
        let ground = Ground { base: location.base.clone(), default_directory };
        Ok(Usable { collection, ground, location, standing, rules, now: self.clock.now() })
    }

    /// How the servers of a usable collection are reached by its caller.
    ///
    /// # Errors
    /// `ServerBusy`: none of them is there now.
    pub async fn site(
        &self,
        usable: &Usable,
        identity: Uuid,
        local_user: Option<&str>,
        want: Want,
    ) -> Result<Site, Fault> {
        self.site_at(&usable.collection, &usable.location, identity, local_user, want).await
    }

    async fn site_at(
        &self,
        collection: &Collection,
        location: &Location,
        identity: Uuid,
        local_user: Option<&str>,
        want: Want,
    ) -> Result<Site, Fault> {
        let mut servers = location.servers.clone();
        servers.extend(self.ready_servers(location.endpoint).await.map_err(unavailable)?);
        if servers.is_empty() {
            let fault = Fault::new(FaultCode::ServerBusy, OP).side(Side::Service);
            return Err(fault.subject(&collection.about.display_name).detail("none of its servers is there now"));
        }
        let root = if location.base.is_empty() { "/" } else { location.base.as_str() };
        let writes: &[&str] = if want == Want::Write { &[root] } else { &[] };
        // Guests act as who shares: their rights there are those of the rules, and no more than those of the sharer.
        let identity = location.sharer.unwrap_or(identity);
        let what = (location.endpoint, identity, root.to_owned(), want);
        let now = self.clock.now();
        let token = match self.site_tokens.get(&what, now) {
            Some(token) => token,
            None => {
                let made = self.dtn_token(location.endpoint, identity, &[root], writes, TOKEN_LIFE).await;
                let token = made.map_err(unavailable)?;
                self.site_tokens.keep(what, token.clone(), now);
                token
            }
        };
        let credential = Credential::Token { token };
        let (base, local_user) = (location.base.clone(), local_user.map(str::to_owned));
        Ok(Site { collection: collection.id, servers, credential, base, local_user })
    }

    /// One end of a task, if it is still where it was.
    async fn site_of_end(&self, task: &Task, end: &TaskEnd, want: Want) -> Result<Site, Fault> {
        let gone = |detail: &str| {
            let fault = Fault::new(FaultCode::NotAuthorized, OP).side(Side::Service);
            fault.subject(&end.display_name).detail(detail)
        };
        let found = self.collection(end.collection).await;
        let collection = match found {
            Ok(found) => found.record,
            Err(error) if error.status.is_client_error() => return Err(gone("it is no more")),
            Err(error) => return Err(unavailable(error)),
        };
        let location = self.location(&collection).await.map_err(unavailable)?;
        if location.base.trim_end_matches('/') != end.base {
            return Err(gone("its root was moved since the task was submitted: submit it again"));
        }
        self.site_at(&collection, &location, task.wanted.owner, end.local_user.as_deref(), want).await
    }
}

impl Sites for Service {
    fn of_task<'a>(&'a self, task: &'a Task) -> Pending<'a, Result<(Site, Option<Site>), Fault>> {
        Box::pin(async move {
            let wanted = &task.wanted;
            let source = self.site_of_end(task, &wanted.source, wanted.work.of_sources()).await?;
            let destination = match &wanted.destination {
                Some(end) => Some(self.site_of_end(task, end, Want::Write).await?),
                None => None,
            };
            Ok((source, destination))
        })
    }
}

fn unavailable(error: ApiError) -> Fault {
    Fault::new(FaultCode::ServerBusy, OP).side(Side::Service).detail(error.to_string())
}
