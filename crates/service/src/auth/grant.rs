//! The token endpoint and what belongs to it (RFC 6749, 7009, 7662).

use std::net::IpAddr;
use std::time::Instant;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::records::{Client, Code, Consent, Identity, Role, Token, TokenKind};
use super::rules::{ByClient, basic, invalid_client};
use super::scope::{self, Monitor, Orchestrate, Scope, Wanted};
use super::secrets::{alike, digest, fits_challenge};
use super::tokens::{Holder, TokenDocument, holder};
use crate::Service;
use crate::audit::Refused;
use crate::http::{Answer, Anyone, ApiError, Call, Form, Query};
use crate::store::{Batch, StoreError, Versioned};

/// Tries to renew a token beside other programs that share its login.
const RENEWALS: u32 = 20;

/// `POST /v2/oauth2/token`.
pub(super) async fn token(call: Call<Anyone, Form>) -> Result<Answer<TokenDocument>, ApiError> {
    let form = &call.body.0;
    let client = call.service.client_of(call.knock.from, basic(&call.knock.headers), form).await?;
    match form.get("grant_type") {
        Some("client_credentials") => call.service.by_credentials(client, form).await,
        Some("authorization_code") => call.service.by_code(client, form).await,
        Some("refresh_token") => call.service.by_refresh_token(client, form).await,
        other => {
            let text = format!("Grants of type {:?} are not given here", other.unwrap_or_default());
            Err(ApiError::oauth(StatusCode::BAD_REQUEST, "unsupported_grant_type", text))
        }
    }
    .map(Answer)
}

impl Service {
    /// The client that a request shows, in its head or its form.
    async fn client_of(&self, from: IpAddr, basic: Option<(String, String)>, form: &Query) -> Result<Client, ApiError> {
        if let Some((id, secret)) = basic {
            return self.client_by_secret(from, &id, &secret).await;
        }
        let id = form.filled("client_id").ok_or_else(|| invalid_client("The request names no client"))?;
        if let Some(secret) = form.filled("client_secret") {
            return self.client_by_secret(from, id, secret).await;
        }
        let client = self.client(id).await?.filter(|client| client.secret.is_none());
        client.ok_or_else(|| invalid_client("The client is unknown, or needs its secret"))
    }

    /// A client by its id.
    pub(crate) async fn client(&self, id: &str) -> Result<Option<Client>, ApiError> {
        let Ok(id) = Uuid::try_parse(id) else { return Ok(None) };
        Ok(self.store.get::<Client>(&id.to_string()).await?.map(|found| found.record))
    }

    /// A client by its id and secret; guesses cost time.
    pub(super) async fn client_by_secret(&self, from: IpAddr, id: &str, secret: &str) -> Result<Client, ApiError> {
        self.throttled(from, Some(id))?;
        let client = self.client(id).await?;
        let named = client.as_ref().map(|client| client.id);
        let known = client.filter(|client| client.secret.as_deref().is_some_and(|hash| alike(hash, &digest(secret))));
        match known {
            Some(client) => {
                self.auth.throttle.lock().expect("nothing panics with it").succeeded(from, id, Instant::now());
                Ok(client)
            }
            None => {
                self.auth.throttle.lock().expect("nothing panics with it").failed(from, Some(id), Instant::now());
                self.tell_refused(Refused::Client, from, named, "secret").await?;
                Err(invalid_client("The client or its secret is wrong"))
            }
        }
    }

    /// Refuses who has guessed too often.
    ///
    /// # Errors
    /// 429 with the time to wait.
    pub(super) fn throttled(&self, from: IpAddr, user: Option<&str>) -> Result<(), ApiError> {
        let wait = self.auth.throttle.lock().expect("nothing panics with it").wait(from, user, Instant::now());
        if wait.is_zero() {
            return Ok(());
        }
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        Err(ApiError::too_many(seconds, format!("Too many wrong logins from your network; try again in {seconds} s")))
    }

    async fn by_credentials(&self, client: Client, form: &Query) -> Result<TokenDocument, ApiError> {
        if client.secret.is_none() {
            return Err(unauthorized_client("A client without a secret cannot act in its own name"));
        }
        if !client.acts_for(client.id) {
            return Err(unauthorized_client("A client of the command line's kind is for logins of people only"));
        }
        let wanted = wanted_of(form.get("scope").unwrap_or_default())?;
        allowed(&client, &wanted)?;
        let holder = holder(client.id, client.id)?;
        let (document, batch) = self.issue(holder, &wanted, Batch::new())?;
        let batch = self.consenting(holder, &wanted, batch).await?;
        self.store.apply(batch).await?;
        Ok(document)
    }

    async fn by_code(&self, client: Client, form: &Query) -> Result<TokenDocument, ApiError> {
        let invalid = |text| ApiError::oauth(StatusCode::BAD_REQUEST, "invalid_grant", text);
        let text = form.filled("code").ok_or_else(|| invalid("There is no code"))?;
        let found = self.store.get::<Code>(&digest(text)).await?;
        let found = found.filter(|code| code.record.client == client.id && code.record.expires > self.clock.now());
        let found = found.ok_or_else(|| invalid("The code is unknown, used or has expired"))?;
        let code = &found.record;
        if form.get("redirect_uri") != Some(&code.redirect) {
            return Err(invalid("The code was asked for with another redirect_uri"));
        }
        let verified = match (&code.challenge, form.filled("code_verifier")) {
            (Some(challenge), Some(verifier)) => fits_challenge(verifier, challenge),
            (None, None) => client.secret.is_some(),
            _ => false,
        };
        if !verified {
            return Err(invalid("The code_verifier is not that of the code"));
        }
        let identity = self.store.get::<Identity>(&code.identity.to_string()).await?;
        let identity = identity.filter(|identity| !identity.record.disabled);
        let identity = identity.ok_or_else(|| invalid("The account was closed since"))?;
        let wanted = wanted_of(&code.scope)?;
        let authenticated = Some(self.clock.now());
        let holder = Holder { refreshable: code.offline, authenticated, ..holder(client.id, code.identity)? };
        // Whoever is second with a code fails here, and who is closed out meanwhile.
        let (mut document, batch) = self.issue(holder, &wanted, Batch::new().delete(&found).require(&identity))?;
        let batch = self.consenting(holder, &wanted, batch).await?;
        let scopes: Vec<_> = wanted.iter().map(ToString::to_string).collect();
        let detail = json!({"scopes": scopes, "refreshable": holder.refreshable, "grant": holder.grant});
        let batch = batch.audit(self.entry(code.identity, "token.grant", client.id).detail(detail));
        if wanted.iter().any(|scope| scope.name == "openid") {
            document.id_token = Some(self.id_token(client.id, code.identity, code.nonce.as_deref()).await?);
        }
        self.store.apply(batch).await.map_err(|error| match error {
            StoreError::Conflict(_) => invalid("The code is unknown, used or has expired"),
            other => other.into(),
        })?;
        Ok(document)
    }

    async fn by_refresh_token(&self, client: Client, form: &Query) -> Result<TokenDocument, ApiError> {
        let invalid = |text| ApiError::oauth(StatusCode::BAD_REQUEST, "invalid_grant", text);
        let text = form.filled("refresh_token").ok_or_else(|| invalid("There is no refresh token"))?;
        let found = self.live_token(text, TokenKind::Refresh).await?.filter(|found| found.record.client == client.id);
        let found = found.ok_or_else(|| invalid("The refresh token is unknown, revoked or has expired"))?;
        let identity = self.store.get::<Identity>(&found.record.identity.to_string()).await?;
        if identity.is_none_or(|identity| identity.record.disabled) {
            return Err(invalid("The login is not valid any more"));
        }
        self.renewed(text, found).await?.ok_or_else(|| invalid("The refresh token was revoked"))
    }

    /// New access tokens by a refresh token as it was read; `None`: it is gone by now.
    ///
    /// They are kept together with the refresh token's own change: whoever revokes it finds them all, or nothing is issued.
    async fn renewed(&self, text: &str, read: Versioned<Token>) -> Result<Option<TokenDocument>, ApiError> {
        let mut found = Some(read);
        for _ in 0..RENEWALS {
            let Some(mut refresh) = found else { return Ok(None) };
            let token = &mut refresh.record;
            let (grant, authenticated) = (token.grant, token.authenticated);
            let holder = Holder { grant, authenticated, ..holder(token.client, token.identity)? };
            let plain = |name: &String| Wanted { name: name.clone(), optional: false, dependencies: Vec::new() };
            let wanted: Vec<_> = token.scopes.iter().map(plain).collect();
            token.expires = super::tokens::later(self.clock.now(), super::tokens::REFRESH_SECONDS);
            // The same refresh token goes on: several programs of a user share one login file, and none is to lock the others out.
            let (document, batch) = self.issue(holder, &wanted, Batch::new().update(&refresh))?;
            match self.store.apply(batch).await {
                // Another program has renewed it in this moment, which is as good, or it was revoked.
                Err(StoreError::Conflict(_)) => found = self.live_token(text, TokenKind::Refresh).await?,
                other => {
                    other?;
                    return Ok(Some(TokenDocument { refresh_token: Some(text.to_owned()), ..document }));
                }
            }
        }
        Err(ApiError::unavailable("The refresh token is used by many at once; try again"))
    }

    /// Notes that asking for these scopes was consent to them.
    async fn consenting(&self, holder: Holder, wanted: &[Wanted], batch: Batch) -> Result<Batch, ApiError> {
        let now = self.clock.now();
        let paths: Vec<_> = wanted.iter().flat_map(Wanted::paths).collect();
        let id = Consent::id_of(holder.identity, holder.client);
        let Some(mut known) = self.store.get::<Consent>(&id).await? else {
            let (identity, client) = (holder.identity, holder.client);
            let entry = self.entry(identity, "consent.give", client).detail(json!({"scopes": paths}));
            return Ok(batch.insert(&Consent { identity, client, paths, created: now, updated: now }).audit(entry));
        };
        let new: Vec<_> = paths.into_iter().filter(|path| !known.record.paths.contains(path)).collect();
        if new.is_empty() {
            return Ok(batch);
        }
        let entry = self.entry(holder.identity, "consent.give", holder.client).detail(json!({"scopes": new}));
        known.record.paths.extend(new);
        known.record.updated = now;
        Ok(batch.update(&known).audit(entry))
    }

    /// Whether an identity lets a client use `dependency` through `root`.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn has_consent(
        &self,
        identity: Uuid,
        client: Uuid,
        root: &str,
        dependency: &str,
    ) -> Result<bool, ApiError> {
        let found = self.store.get::<Consent>(&Consent::id_of(identity, client)).await?;
        let fits = |path: &Vec<String>| {
            path.iter()
                .position(|scope| scope == root)
                .is_some_and(|at| path[at..].iter().any(|scope| scope == dependency))
        };
        Ok(found.is_some_and(|consent| consent.record.paths.iter().any(fits)))
    }
}

fn wanted_of(text: &str) -> Result<Vec<Wanted>, ApiError> {
    scope::parse(text).map_err(|error| ApiError::oauth(StatusCode::BAD_REQUEST, "invalid_scope", error.to_string()))
}

/// Orchestrators and monitors ask for their own scopes, and nobody else does.
pub(super) fn allowed(client: &Client, wanted: &[Wanted]) -> Result<(), ApiError> {
    let fits = |name: &str| match client.role {
        Role::Orchestrator => name == Orchestrate::NAME,
        Role::Monitor => name == Monitor::NAME,
        Role::Program => ![Orchestrate::NAME, Monitor::NAME].contains(&name),
    };
    if !wanted.iter().all(|scope| fits(&scope.name)) {
        return Err(ApiError::oauth(StatusCode::BAD_REQUEST, "invalid_scope", "The client may not have these scopes"));
    }
    Ok(())
}

fn unauthorized_client(text: &str) -> ApiError {
    ApiError::oauth(StatusCode::BAD_REQUEST, "unauthorized_client", text)
}

/// An empty document.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Revoked {
    /// `false`, whatever it was before.
    active: bool,
}

/// `POST /v2/oauth2/token/revoke`: good for unknown tokens, too (RFC 7009 §2.2).
pub(super) async fn revoke(call: Call<Anyone, Form>) -> Result<Answer<Revoked>, ApiError> {
    let (form, basic) = (&call.body.0, basic(&call.knock.headers));
    let proven = basic.is_some() || form.filled("client_secret").is_some();
    let client = if proven { Some(call.service.client_of(call.knock.from, basic, form).await?.id) } else { None };
    call.service.revoke(form.get("token").unwrap_or_default(), client).await?;
    Ok(Answer(Revoked { active: false }))
}

/// Whether a token is good.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Validity {
    active: bool,
}

/// `POST /v2/oauth2/token/validate`: whoever has a token may learn whether it is good.
pub(super) async fn validate(call: Call<Anyone, Form>) -> Result<Answer<Validity>, ApiError> {
    let text = call.body.0.get("token").unwrap_or_default();
    let active = call.service.known(text).await?.is_some();
    Ok(Answer(Validity { active }))
}

/// `POST /v2/oauth2/token/introspect` (RFC 7662): a client learns of its own tokens only.
pub(super) async fn introspect(call: Call<ByClient, Form>) -> Result<Answer<Value>, ApiError> {
    let inactive = Answer(json!({"active": false}));
    let Some(token) = call.service.known(call.body.0.get("token").unwrap_or_default()).await? else {
        return Ok(inactive);
    };
    if token.client != call.caller.id {
        return Ok(inactive);
    }
    let Some(identity) = call.service.store.get::<Identity>(&token.identity.to_string()).await? else {
        return Ok(inactive);
    };
    let identity = identity.record;
    let logins: serde_json::Map<String, Value> = token
        .authenticated
        .map(|at| {
            (
                identity.id.to_string(),
                json!({"auth_time": at.secs, "idp": Uuid::nil(), "acr": null, "amr": null, "custom_claims": {}}),
            )
        })
        .into_iter()
        .collect();
    Ok(Answer(json!({
        "active": true, "client_id": token.client, "sub": identity.id, "username": identity.username, "name": identity.name,
        "email": identity.email, "scope": token.scopes.join(" "), "iat": token.issued.secs, "nbf": token.issued.secs,
        "exp": token.expires.secs, "iss": call.service.config.url, "aud": [token.resource_server, token.client.to_string()],
        "token_type": "Bearer", "identity_set": [identity.id],
        "session_info": {"session_id": token.grant, "authentications": logins},
    })))
}

impl Service {
    async fn known(&self, text: &str) -> Result<Option<Token>, ApiError> {
        for kind in [TokenKind::Access, TokenKind::Refresh] {
            if let Some(found) = self.live_token(text, kind).await? {
                return Ok(Some(found.record));
            }
        }
        Ok(None)
    }
}
