//! Browsers go to the provider, and come back with a code.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use axum::http::StatusCode;
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Value, json};
use whimbrel_engine::Fault;
use whimbrel_trust::oidc::Person;

use super::{BACK, Provider, Ties};
use crate::Service;
use crate::audit::Refused;
use crate::auth::identities::NewIdentity;
use crate::auth::login::{Asked, Wrong, cookie_of, refusal};
use crate::auth::records::{Departure, Elsewhere, Identity};
use crate::auth::secrets::{alike, digest, random};
use crate::auth::tokens::later;
use crate::http::{Anyone, ApiError, Call, HtmlPage, Query};
use crate::store::{AuditEntry, Batch, StoreError, Versioned};

/// How long somebody may take to log in there, seconds.
const AWAY: i64 = 900;

const TOO_OLD: &str =
    "This login was begun in another browser, or too long ago. Go back to the program and begin again.";

impl Service {
    /// Sends a browser to the provider; `query` is what the client asked for.
    pub(in crate::auth) async fn depart(
        &self,
        provider: &Provider,
        from: IpAddr,
        query: &Query,
    ) -> Result<HtmlPage, ApiError> {
        if !self.auth.departures.lock().expect("nothing panics with it").ask(from, Instant::now()) {
            return Err(ApiError::too_many(60, "Too many logins from your network; try again in a minute"));
        }
        let now = self.clock.now();
        let places = provider.places(now.secs).await.map_err(|fault| unreachable(provider, &fault))?;
        let (state, nonce, verifier) = (random("")?, random("")?, random("")?);
        let ties = Ties { state: &state, nonce: &nonce, verifier: &verifier };
        let location = provider.departure(&places, &self.back(), &ties);
        let hash = digest(&state);
        let departure = Departure { hash, asked: query.to_text(), nonce, verifier, expires: later(now, AWAY) };
        self.store.apply(Batch::new().insert(&departure)).await?;
        Ok(HtmlPage::See { location, cookie: Some(self.tie(&state, AWAY)) })
    }

    /// Where the provider sends browsers back to.
    fn back(&self) -> String {
        format!("{}{BACK}", self.config.url)
    }

    /// The cookie that ties the provider's answer to the browser that was sent there. The answer comes from another site: not strict.
    fn tie(&self, state: &str, seconds: i64) -> String {
        let secure = if self.config.url.starts_with("https://") { "; Secure" } else { "" };
        format!("{}={state}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}", self.tie_name())
    }

    fn tie_name(&self) -> &'static str {
        if self.config.url.starts_with("https://") { "__Host-whimbrel-away" } else { "whimbrel-away" }
    }

    /// The login that an answer belongs to, which it ends.
    async fn arrived(&self, call: &Call<Anyone>) -> Result<Option<Departure>, ApiError> {
        let state = call.query.get("state").unwrap_or_default();
        let tied = cookie_of(&call.knock.headers, self.tie_name());
        if !tied.is_some_and(|tied| !tied.is_empty() && alike(tied, state)) {
            return Ok(None);
        }
        let Some(found) = self.store.get::<Departure>(&digest(state)).await? else { return Ok(None) };
        // Of two answers at once one is too late: it finds nothing to delete.
        match self.store.apply(Batch::new().delete(&found)).await {
            Ok(()) => Ok(Some(found.record).filter(|departure| departure.expires > self.clock.now())),
            Err(StoreError::Conflict(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Who logged in at the provider, as an identity here.
    async fn known_there(&self, provider: &Provider, token: &str, person: Person) -> Result<Identity, ApiError> {
        match self.look_up(provider, token, &person).await {
            // Somebody's first two logins came at once.
            Err(error) if error.status == StatusCode::CONFLICT => self.look_up(provider, token, &person).await,
            result => result,
        }
    }

    async fn look_up(&self, provider: &Provider, token: &str, person: &Person) -> Result<Identity, ApiError> {
        let elsewhere = Elsewhere { issuer: provider.settings.issuer.clone(), subject: person.subject.clone() };
        let found = self.store.find::<Identity>("elsewhere", &elsewhere.key(), None, 1).await?;
        if let Some(known) = found.into_iter().next() {
            return Ok(known.record);
        }
        let verified = is_true(token, "email_verified");
        let username = username(&provider.settings.claim, &provider.settings.domain, person, verified)?;
        let found = self.store.find::<Identity>("username", &username, None, 1).await?;
        match found.into_iter().next() {
            Some(waiting) if is_waiting(&waiting.record) => self.adopt(waiting, elsewhere).await,
            Some(_) => Err(ApiError::conflict(format!(
                "{username} is somebody else's name here already; ask the administrator of this service"
            ))),
            None => {
                let text = |name: &str| person.claims.get(name).filter(|text| !text.is_empty() && text.len() <= 255);
                self.welcome(
                    NewIdentity {
                        username,
                        name: text("name").cloned(),
                        email: text("email").filter(|_| verified).cloned(),
                        organization: Some(provider.settings.label.clone()),
                        ..NewIdentity::default()
                    },
                    elsewhere,
                )
                .await
            }
        }
    }

    /// Somebody comes to whom access was given before.
    async fn adopt(&self, mut waiting: Versioned<Identity>, elsewhere: Elsewhere) -> Result<Identity, ApiError> {
        waiting.record.elsewhere = Some(elsewhere);
        let entry = self.first_login(&waiting.record);
        self.store.apply(Batch::new().update(&waiting).audit(entry)).await?;
        Ok(waiting.record)
    }

    async fn welcome(&self, new: NewIdentity, elsewhere: Elsewhere) -> Result<Identity, ApiError> {
        let identity = Identity { elsewhere: Some(elsewhere), ..self.identity_of(new).await? };
        let entry = self.first_login(&identity);
        self.store.apply(Batch::new().insert(&identity).audit(entry)).await?;
        Ok(identity)
    }

    fn first_login(&self, identity: &Identity) -> AuditEntry {
        let id = identity.id.to_string();
        AuditEntry::new(self.clock.now(), id.clone(), "identity.first_login", id)
    }
}

/// `GET /v2/oauth2/provider`: a browser comes back.
pub(in crate::auth) async fn arrive(call: Call<Anyone>) -> Result<HtmlPage, ApiError> {
    let service = &call.service;
    let Some(provider) = service.auth.provider.get() else {
        return Err(ApiError::not_found("NotFound", "Nobody logs in here by another provider"));
    };
    let Some(departure) = service.arrived(&call).await? else { return Ok(refusal(StatusCode::FORBIDDEN, TOO_OLD)) };
    let asked = match service.asked(&Query::parse(departure.asked.as_bytes())).await? {
        Ok(asked) => asked,
        Err(wrong) => return Ok(wrong.page()),
    };
    let page = match service.answer_of(provider, &call, &departure).await? {
        Err(error) => {
            service.tell_refused(Refused::Login, call.knock.from, None, "provider").await?;
            service.denied(asked, error)
        }
        Ok(identity) if identity.disabled => {
            service.tell_refused(Refused::Login, call.knock.from, Some(identity.id), "provider").await?;
            let closed = format!("The account {} is closed.", identity.username);
            refusal(StatusCode::FORBIDDEN, &closed)
        }
        Ok(identity) => {
            tracing::info!(request = %call.place.request, identity = %identity.username, client = %asked.client.id, "logged in elsewhere");
            let how = json!({"by": "provider", "issuer": provider.settings.issuer, "from": call.knock.from});
            service.accept(&asked, &identity, how).await?
        }
    };
    Ok(match page {
        HtmlPage::See { location, .. } => HtmlPage::See { location, cookie: Some(service.tie("", 0)) },
        html @ HtmlPage::Html { .. } => html,
    })
}

impl Service {
    /// What the provider says; the inner error is for the client that wanted the login.
    async fn answer_of(
        &self,
        provider: &Provider,
        call: &Call<Anyone>,
        departure: &Departure,
    ) -> Result<Result<Identity, ApiError>, ApiError> {
        let denied = |text: String| ApiError::oauth(StatusCode::FORBIDDEN, "access_denied", text);
        let label = &provider.settings.label;
        let issuer = call.query.filled("iss");
        if issuer.is_some_and(|issuer| issuer != provider.settings.issuer) {
            // RFC 9207 §2.4.
            return Ok(Err(denied("The answer is another provider's".to_owned())));
        }
        let Some(code) = call.query.filled("code") else {
            let why: String = call.query.get("error").unwrap_or("no code").chars().take(100).collect();
            return Ok(Err(denied(format!("{label} did not let you in ({why})"))));
        };
        let now = self.clock.now().secs;
        let exchanged = provider.exchange(code, &self.back(), &departure.verifier, now).await;
        let judged = match exchanged {
            Ok(token) => provider.person(&token, &departure.nonce, now).await.map(|person| (token, person)),
            Err(fault) => Err(fault),
        };
        match judged {
            Ok((token, person)) => match self.known_there(provider, &token, person).await {
                Ok(identity) => Ok(Ok(identity)),
                Err(error) if error.status.is_client_error() => Ok(Err(denied(error.message))),
                Err(error) => Err(error),
            },
            Err(fault) => {
                tracing::warn!(request = %call.place.request, %fault, "a login elsewhere failed");
                Ok(Err(ApiError::oauth(StatusCode::BAD_GATEWAY, "server_error", format!("{label}: {}", fault.detail))))
            }
        }
    }

    /// Sends the browser back without a code.
    fn denied(&self, asked: Asked, error: ApiError) -> HtmlPage {
        Wrong::There(self.landing(&asked.redirect), asked.state, error).page()
    }
}

fn unreachable(provider: &Provider, fault: &Fault) -> ApiError {
    tracing::warn!(%fault, "the provider of identities is not reached");
    ApiError::unavailable(format!("{} cannot be reached at this moment; try again", provider.settings.label))
}

/// Access was given to the name, and nobody has logged in as it.
fn is_waiting(identity: &Identity) -> bool {
    identity.password.is_none() && identity.elsewhere.is_none() && !identity.disabled
}

/// What somebody is called here: by the claim that the administrator believes in, below the provider's own domain.
fn username(claim: &str, domain: &str, person: &Person, verified: bool) -> Result<String, ApiError> {
    let named = match claim {
        "sub" => Some(person.subject.as_str()),
        "email" if !verified => None,
        other => person.claims.get(other).map(String::as_str),
    };
    let missing = || ApiError::denied(format!("The provider does not tell your name (the claim {claim:?})"));
    let named = named.filter(|named| !named.is_empty()).ok_or_else(missing)?.to_lowercase();
    let name = match named.rsplit_once('@') {
        Some((name, its)) if its == domain.to_lowercase() => name,
        Some(_) => {
            return Err(ApiError::denied(format!("Your name there, {named}, is not one of {domain}")));
        }
        None => &named,
    };
    let fine = |sign: char| !sign.is_control() && !sign.is_whitespace() && sign != '@';
    match !name.is_empty() && name.len() <= 180 && name.chars().all(fine) {
        true => Ok(format!("{name}@{}", domain.to_lowercase())),
        false => Err(ApiError::denied(format!("Your name there, {named:?}, cannot be a name here"))),
    }
}

/// Whether a claim of a verified token is true; some write that as a text.
fn is_true(token: &str, claim: &str) -> bool {
    let payload = token.split('.').nth(1).and_then(|part| Base64UrlUnpadded::decode_vec(part).ok());
    let claims: Option<BTreeMap<String, Value>> = payload.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let value = claims.as_ref().and_then(|claims| claims.get(claim));
    value.is_some_and(|value| *value == Value::Bool(true) || value.as_str() == Some("true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(claims: &[(&str, &str)]) -> Person {
        let claims = claims.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Person { subject: "S-1".to_owned(), claims }
    }

    #[test]
    fn people_are_named_within_the_providers_own_domain() {
        let ada = person(&[("preferred_username", "Ada"), ("email", "ada@uni.example"), ("eppn", "ada@other.example")]);
        let named = |claim: &str, verified| username(claim, "Uni.example", &ada, verified).ok();
        assert_eq!(named("sub", true).as_deref(), Some("s-1@uni.example"));
        assert_eq!(named("preferred_username", true).as_deref(), Some("ada@uni.example"));
        assert_eq!(named("email", true).as_deref(), Some("ada@uni.example"));
        for (claim, verified) in [("email", false), ("eppn", true), ("none", true)] {
            assert_eq!(named(claim, verified), None, "{claim}");
        }
        for bad in ["", "a b", "a\nb", "@uni.example", "ada@uni.example@example.org", &"x".repeat(200)] {
            let ada = person(&[("name", bad)]);
            assert!(username("name", "uni.example", &ada, true).is_err(), "{bad:?}");
        }
        let odd = person(&[("name", "a@b@uni.example")]);
        assert!(username("name", "uni.example", &odd, true).is_err());
    }

    #[test]
    fn what_is_true_may_be_a_text() {
        let token = |payload: &str| format!("x.{}.y", Base64UrlUnpadded::encode_string(payload.as_bytes()));
        assert!(is_true(&token(r#"{"a":true}"#), "a") && is_true(&token(r#"{"a":"true"}"#), "a"));
        for bad in [r#"{"a":false}"#, r#"{"a":1}"#, "{}", "[", r#"{"a":"false"}"#] {
            assert!(!is_true(&token(bad), "a"), "{bad}");
        }
    }
}
