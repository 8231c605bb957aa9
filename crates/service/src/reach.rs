//! How collections are reached: by whom, at which servers, with which credential.

pub mod rates;
mod relays;
mod tasks;

use std::collections::HashMap;
use std::sync::Mutex;

use uuid::Uuid;
use whimbrel_engine::dispatch::{Credential, Site};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::Service;
use crate::auth::Actor;
use crate::auth::keys::dtn_scope;
use crate::auth::scope::{Scope, TransferAll, data_access};
use crate::endpoints::lookup::Limits;
use crate::endpoints::records::{AccessRule, Collection, EntityType};
use crate::endpoints::{Location, Rights, Standing, Want, Who, may};
use crate::grid::Logins;
use crate::http::ApiError;
use crate::tasks::submission::Ground;

/// Seconds for which a token for DTNs is good: tasks get new ones with each lease, and every [`TOKEN_REUSE`] while they run.
const TOKEN_LIFE: i64 = 6 * 3600;

const OP: &str = "reach the collection";

/// Seconds for which a token is used again: a site that is the same as before is one that orchestrators are logged in at.
const TOKEN_REUSE: i64 = 1800;

/// Longest text of a token's scopes, bytes: servers take tokens of 16 KiB, a third of which goes to their writing (RFC 7515 §2).
const LONGEST_SCOPE: usize = 10 << 10;

/// Most tokens that are remembered.
const MOST_TOKENS: usize = 10_000;

/// Endpoint, identity, what for, and how fast.
type TokenOf = (Uuid, Uuid, String, Option<u64>);

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
    /// What its servers are shown.
    pub logins: Logins,
    location: Location,
    standing: Standing,
    rules: Vec<AccessRule>,
    rights: Rights,
    now: Timestamp,
}

impl Usable {
    /// What holds for transfers with it.
    pub fn limits(&self) -> Limits {
        self.location.limits
    }

    /// The account of the servers that the caller asks for.
    ///
    /// # Errors
    /// 400 where somebody shares: guests act in the sharer's name, who alone chooses the account for it.
    pub fn account(&self, named: Option<String>) -> Result<Option<String>, ApiError> {
        match named {
            Some(named) if self.location.sharer.is_some() => Err(ApiError::bad_request(format!(
                "{} is shared by somebody, with an account of theirs: ask for it without a local user, not as {named}",
                self.collection.about.display_name
            ))),
            named => Ok(named),
        }
    }

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
    /// 404 for one that is not there, or that the caller may not know of; 403 for one that nobody shares any more; 409 for one
    /// without files.
    pub async fn usable(&self, id: Uuid, caller: &Actor) -> Result<Usable, ApiError> {
        let (found, standing) = self.visible(caller, id).await?;
        let usable = self.usable_for(found.record, standing).await?;
        self.consented(&usable.collection, caller).await?;
        Ok(usable)
    }

    /// A collection of which rules give something to everybody, for who does not log in.
    ///
    /// # Errors
    /// 401 for all others: logging in may help.
    pub async fn usable_by_anybody(&self, id: Uuid) -> Result<Usable, ApiError> {
        let standing = Standing { who: Who::default(), roles: Vec::new(), own: Vec::new() };
        let found = self.collection(id).await.ok().map(|found| found.record);
        let shared = match found.filter(|collection| collection.kind.is_guest()) {
            Some(collection) if self.has_rule(&standing, &collection).await? => Some(collection),
            _ => None,
        };
        let shared = shared.ok_or_else(|| ApiError::unauthenticated("The request shows no access token (Bearer)"))?;
        self.usable_for(shared, standing).await
    }

    async fn usable_for(&self, mut collection: Collection, standing: Standing) -> Result<Usable, ApiError> {
        let id = collection.id;
        self.functional(&collection)?;
        if let Some(reason) = self.unshared(&collection).await? {
            let name = &collection.about.display_name;
            return Err(ApiError::denied(format!("{name} is not shared any more: {reason}")));
        }
        let location = self.location(&collection).await?;
        location.limits.bind(&mut collection.policy);
        let rules = if collection.kind.is_guest() { self.rules_of(id).await? } else { Vec::new() };
        let now = self.clock.now();
        let rights = Rights::of(&standing.who, &collection, &standing.own, &rules, &location.base, now);
        let default_directory = collection.policy.default_directory.clone().unwrap_or_else(|| "/".into());
        let servers = location.servers.iter().map(|server| server.url.to_lowercase());
        let storage = servers.chain([location.endpoint.to_string()]).collect();
        let ground = Ground { base: location.base.clone(), default_directory, storage };
        let logins = self.logins(&location).await?;
        Ok(Usable { collection, ground, logins, location, standing, rules, rights, now })
    }

    /// Refuses whose user has not let their program use a collection that asks for that. Guest collections never do: their rules say
    /// who comes in.
    async fn consented(&self, collection: &Collection, caller: &Actor) -> Result<(), ApiError> {
        if collection.kind != EntityType::Mapped || !collection.policy.data_access {
            return Ok(());
        }
        let wanted = data_access(collection.id);
        if self.has_consent(caller.identity, caller.client, TransferAll::NAME, &wanted).await? {
            return Ok(());
        }
        // The public command line knows these words.
        let message = "Missing required data_access consent";
        Err(ApiError::consent_required(message, &[format!("{}[*{wanted}]", TransferAll::NAME)]))
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
        let Usable { collection, location, rights, .. } = usable;
        self.site_at((collection, location, rights), identity, local_user, want).await
    }

    async fn site_at(
        &self,
        (collection, location, rights): (&Collection, &Location, &Rights),
        identity: Uuid,
        local_user: Option<&str>,
        want: Want,
    ) -> Result<Site, Fault> {
        // Of the sharer's accounts, guests have the one that the sharer shares with.
        let local_user = local_user.filter(|_| location.sharer.is_none());
        let mut servers = location.servers.clone();
        servers.extend(self.ready_servers(location.endpoint).await.map_err(unavailable)?);
        if servers.is_empty() {
            let fault = Fault::new(FaultCode::ServerBusy, OP).side(Side::Service);
            return Err(fault.subject(&collection.about.display_name).detail("none of its servers is there now"));
        }
        let site = |credential, local_user| {
            let (collection, base) = (collection.id, location.base.clone());
            Site { collection, servers, credential, base, local_user }
        };
        let logins = self.logins(location).await.map_err(unavailable)?;
        if logins.is_stock() {
            let credential = self.shown_at_stock(logins, collection, location, identity).await?;
            // Servers for anybody have one account for all.
            let local_user = local_user.filter(|_| logins == Logins::Proxy).map(str::to_owned);
            return Ok(site(credential, local_user));
        }
        // Guests act as who shares: their rights there are those of the rules, and no more than those of the sharer.
        let identity = location.sharer.unwrap_or(identity);
        let mut scope = dtn_scope(&rights.scopes(want));
        if location.sharer.is_some() {
            scope += " whimbrel.guest";
        }
        if scope.len() > LONGEST_SCOPE {
            let fault = Fault::new(FaultCode::NotSupported, OP).side(Side::Service);
            let fault = fault.subject(&collection.about.display_name);
            return Err(fault.detail("it has more rules for you than one token can hold: give you a directory above"));
        }
        let rate = location.limits.rate;
        let what = (location.endpoint, identity, scope, rate);
        let now = self.clock.now();
        let token = match self.site_tokens.get(&what, now) {
            Some(token) => token,
            None => {
                let made = self.dtn_token(location.endpoint, identity, &what.2, rate, TOKEN_LIFE).await;
                let token = made.map_err(|error| lost(error, &collection.about.display_name))?;
                self.site_tokens.keep(what, token.clone(), now);
                token
            }
        };
        let local_user = match local_user {
            Some(named) => Some(named.to_owned()),
            None => self.chosen_account(location.endpoint, identity).await.map_err(unavailable)?,
        };
        Ok(site(Credential::Token { token }, local_user))
    }
}

/// What somebody may not do any more, or what cannot be told now.
fn lost(error: ApiError, name: &str) -> Fault {
    match error.status.is_client_error() {
        true => Fault::new(FaultCode::NotAuthorized, OP).side(Side::Service).subject(name).detail(error.message),
        false => unavailable(error),
    }
}

fn unavailable(error: ApiError) -> Fault {
    Fault::new(FaultCode::ServerBusy, OP).side(Side::Service).detail(error.to_string())
}
