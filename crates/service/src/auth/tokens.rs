//! Access and refresh tokens: opaque, kept as digests, looked up with a short memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::records::{Client, Code, Departure, Identity, Token, TokenKind, hour};
use super::rules::Actor;
use super::scope::{Wanted, resource_server};
use super::secrets::{digest, random, random_id};
use crate::Service;
use crate::http::ApiError;
use crate::store::{Batch, Record, Versioned};

/// Life of access tokens, seconds: two days, as clients of the Transfer API expect.
pub const ACCESS_SECONDS: i64 = 48 * 3600;
/// Life of refresh tokens that are not used, seconds: half a year.
pub const REFRESH_SECONDS: i64 = 183 * 24 * 3600;
/// How long a token that was found good is believed without another look: the longest that a revocation at another replica goes
/// unnoticed.
const BELIEVED: Duration = Duration::from_secs(5);
/// Tokens that are remembered.
const MOST: usize = 8192;

/// Tokens that were found good a moment ago, by digest.
#[derive(Debug, Default)]
pub struct Memory(Mutex<HashMap<String, (Instant, Arc<Actor>)>>);

impl Memory {
    fn recall(&self, hash: &str) -> Option<Arc<Actor>> {
        let remembered = self.0.lock().expect("nothing panics with it");
        remembered.get(hash).filter(|(at, _)| at.elapsed() < BELIEVED).map(|(_, actor)| actor.clone())
    }

    fn keep(&self, hash: String, actor: Arc<Actor>) {
        let mut remembered = self.0.lock().expect("nothing panics with it");
        if remembered.len() >= MOST {
            remembered.retain(|_, (at, _)| at.elapsed() < BELIEVED);
        }
        if remembered.len() < MOST {
            remembered.insert(hash, (Instant::now(), actor));
        }
    }

    /// Believes nothing any more.
    pub fn forget(&self) {
        self.0.lock().expect("nothing panics with it").clear();
    }
}

/// The answer of the token endpoint (RFC 6749 §5.1), with Globus' tokens for several resource servers.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct TokenDocument {
    /// The token.
    pub access_token: String,
    /// Scopes, with blanks between them.
    pub scope: String,
    /// Seconds.
    pub expires_in: i64,
    /// `Bearer`.
    pub token_type: &'static str,
    /// Whom it is for.
    pub resource_server: String,
    /// What it is renewed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// Who logged in (OpenID Connect Core §3.1.3.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_token: Option<String>,
    /// Tokens for further resource servers; of the first document only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_tokens: Option<Vec<TokenDocument>>,
}

/// In whose name tokens are given to whom.
#[derive(Debug, Clone, Copy)]
pub struct Holder {
    /// The client.
    pub client: Uuid,
    /// The identity.
    pub identity: Uuid,
    /// The login they all come from.
    pub grant: Uuid,
    /// Whether refresh tokens are given, too.
    pub refreshable: bool,
    /// When the login was; `None`: a client in its own name.
    pub authenticated: Option<Timestamp>,
}

impl Service {
    /// Who shows an access token; `None` if it is unknown, revoked, over, or of somebody who may not log in any more.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn actor(&self, text: &str) -> Result<Option<Arc<Actor>>, ApiError> {
        let now = self.clock.now();
        let hash = digest(text);
        if let Some(actor) = self.auth.memory.recall(&hash) {
            return Ok((actor.expires > now).then_some(actor));
        }
        let Some(token) = self.live_token(text, TokenKind::Access).await? else { return Ok(None) };
        let (client, identity) = (token.record.client.to_string(), token.record.identity.to_string());
        let Some(client) = self.store.get::<Client>(&client).await? else { return Ok(None) };
        if !client.record.acts_for(token.record.identity) {
            return Ok(None);
        }
        let identity = self.store.get::<Identity>(&identity).await?.map(|found| found.record);
        let Some(identity) = identity.filter(|identity| !identity.disabled) else { return Ok(None) };
        let actor = Arc::new(Actor::new(token.record, identity, &client.record));
        self.auth.memory.keep(hash, actor.clone());
        Ok(Some(actor))
    }

    /// A token that is known and not over.
    pub(super) async fn live_token(&self, text: &str, kind: TokenKind) -> Result<Option<Versioned<Token>>, ApiError> {
        let now = self.clock.now();
        let found = self.store.get::<Token>(&digest(text)).await?;
        Ok(found.filter(|token| token.record.kind == kind && token.record.expires > now))
    }

    /// Makes tokens for what is wanted, one for each resource server; they are good once the batch is applied.
    ///
    /// # Errors
    /// 400 (`invalid_scope`) for a scope that does not exist, or none.
    pub(super) fn issue(
        &self,
        holder: Holder,
        wanted: &[Wanted],
        mut batch: Batch,
    ) -> Result<(TokenDocument, Batch), ApiError> {
        let mut by_server: Vec<(&str, Vec<String>)> = Vec::new();
        for scope in wanted {
            let server = resource_server(&scope.name).ok_or_else(|| invalid_scope(&scope.name))?;
            let known = by_server.iter().position(|(name, _)| *name == server);
            let place = known.unwrap_or_else(|| {
                by_server.push((server, Vec::new()));
                by_server.len() - 1
            });
            if !by_server[place].1.contains(&scope.name) {
                by_server[place].1.push(scope.name.clone());
            }
        }
        let mut documents = Vec::new();
        for (server, scopes) in by_server {
            let (document, larger) = self.issue_one(holder, server, scopes, batch)?;
            documents.push(document);
            batch = larger;
        }
        let mut documents = documents.into_iter();
        let mut first = documents.next().ok_or_else(|| invalid_scope(""))?;
        first.other_tokens = Some(documents.collect());
        Ok((first, batch))
    }

    fn issue_one(
        &self,
        holder: Holder,
        server: &str,
        scopes: Vec<String>,
        batch: Batch,
    ) -> Result<(TokenDocument, Batch), ApiError> {
        let now = self.clock.now();
        let make = |text: &str, kind, seconds| Token {
            hash: digest(text),
            kind,
            client: holder.client,
            identity: holder.identity,
            resource_server: server.to_owned(),
            scopes: scopes.clone(),
            grant: holder.grant,
            issued: now,
            expires: later(now, seconds),
            authenticated: holder.authenticated,
        };
        let access_token = random("wa_")?;
        let mut batch = batch.insert(&make(&access_token, TokenKind::Access, ACCESS_SECONDS));
        let mut refresh_token = None;
        if holder.refreshable {
            let text = random("wr_")?;
            batch = batch.insert(&make(&text, TokenKind::Refresh, REFRESH_SECONDS));
            refresh_token = Some(text);
        }
        let document = TokenDocument {
            access_token,
            scope: scopes.join(" "),
            expires_in: ACCESS_SECONDS,
            token_type: "Bearer",
            resource_server: server.to_owned(),
            refresh_token,
            id_token: None,
            other_tokens: None,
        };
        Ok((document, batch))
    }

    /// Revokes a token; a refresh token with all tokens of its login and resource server.
    ///
    /// `client`: who has proven to be that one; without proof whoever has a token may end it, as the command line does when its user
    /// logs out.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn revoke(&self, text: &str, client: Option<Uuid>) -> Result<(), ApiError> {
        let Some(found) = self.store.get::<Token>(&digest(text)).await? else { return Ok(()) };
        let token = found.record;
        // RFC 7009 §2.1: another client's is as if it were not there.
        if client.is_some_and(|client| token.client != client) {
            return Ok(());
        }
        let (whole, server) = (token.kind == TokenKind::Refresh, Some(token.resource_server.as_str()));
        let batch = if whole { self.ending("grant", token.grant, server).await? } else { Batch::new() };
        // Without proof it is as if they did it in whose name the token is.
        let detail =
            json!({"identity": token.identity, "kind": token.kind, "for": token.resource_server, "grant": token.grant});
        let entry = self.entry(client.unwrap_or(token.identity), "token.revoke", token.client).detail(detail);
        self.store.apply(batch.delete_id::<Token>(&token.hash).audit(entry)).await?;
        if whole {
            // What was renewed between the look and the end; nothing is from now on.
            self.store.apply(self.ending("grant", token.grant, server).await?).await?;
        }
        self.auth.memory.forget();
        Ok(())
    }

    /// The end of all tokens with a key, or of those for one resource server.
    async fn ending(&self, key: &str, value: Uuid, server: Option<&str>) -> Result<Batch, ApiError> {
        let tokens = self.all_by_key::<Token>(key, &value.to_string()).await?;
        let ended =
            tokens.into_iter().filter(|token| server.is_none_or(|server| token.record.resource_server == server));
        Ok(ended.fold(Batch::new(), |batch, token| batch.delete_id::<Token>(token.record.hash)))
    }

    /// Ends all logins of an identity.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn revoke_all(&self, identity: Uuid) -> Result<(), ApiError> {
        self.store.apply(self.ending("identity", identity, None).await?).await?;
        // What was renewed between the look and the end.
        self.store.apply(self.ending("identity", identity, None).await?).await?;
        self.auth.memory.forget();
        Ok(())
    }

    /// Forgets tokens, codes and departures that ended in an hour, to be called for each hour that is over; how many.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn forget_expired(&self, of_hour: Timestamp) -> Result<usize, ApiError> {
        let key = hour(of_hour);
        let (now, mut batch, mut count) = (self.clock.now(), Batch::new(), 0);
        for token in
            self.all_by_key::<Token>("hour", &key).await?.into_iter().filter(|token| token.record.expires <= now)
        {
            (batch, count) = (batch.delete_id::<Token>(token.record.hash), count + 1);
        }
        let codes = self.all_by_key::<Code>("hour", &key).await?;
        for code in codes.into_iter().filter(|code| code.record.expires <= now) {
            (batch, count) = (batch.delete_id::<Code>(code.record.hash), count + 1);
        }
        let departures = self.all_by_key::<Departure>("hour", &key).await?;
        for departure in departures.into_iter().filter(|departure| departure.record.expires <= now) {
            (batch, count) = (batch.delete_id::<Departure>(departure.record.hash), count + 1);
        }
        self.store.apply(batch).await?;
        Ok(count)
    }

    /// All records with a value for a key.
    pub(crate) async fn all_by_key<R: Record>(&self, key: &str, value: &str) -> Result<Vec<Versioned<R>>, ApiError> {
        let mut all: Vec<Versioned<R>> = Vec::new();
        loop {
            let after = all.last().map(|last| last.record.id());
            let page = self.store.find(key, value, after.as_deref(), PAGE).await?;
            let full = page.len() == PAGE as usize;
            all.extend(page);
            if !full {
                return Ok(all);
            }
        }
    }

    /// All records of a kind.
    pub(crate) async fn all<R: Record>(&self) -> Result<Vec<Versioned<R>>, ApiError> {
        let mut all: Vec<Versioned<R>> = Vec::new();
        loop {
            let after = all.last().map(|last| last.record.id());
            let page = self.store.list(after.as_deref(), PAGE).await?;
            let full = page.len() == PAGE as usize;
            all.extend(page);
            if !full {
                return Ok(all);
            }
        }
    }
}

/// Records read at once.
const PAGE: u32 = 500;

/// A holder for a new login.
///
/// # Errors
/// 500 without randomness.
pub(super) fn holder(client: Uuid, identity: Uuid) -> Result<Holder, ApiError> {
    Ok(Holder { client, identity, grant: random_id()?, refreshable: false, authenticated: None })
}

/// So many seconds after a time.
pub(crate) fn later(time: Timestamp, seconds: i64) -> Timestamp {
    Timestamp { secs: time.secs.saturating_add(seconds), nanos: time.nanos }
}

pub(super) fn invalid_scope(name: &str) -> ApiError {
    let description =
        if name.is_empty() { "No scope was asked for".to_owned() } else { format!("There is no scope {name}") };
    ApiError::oauth(axum::http::StatusCode::BAD_REQUEST, "invalid_scope", description)
}
