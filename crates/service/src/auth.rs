//! The issuer: who is who, which programs may act for them, and the tokens that prove it.
//!
//! Names of scopes and resource servers are those of the public clients, which have them compiled in.

pub mod clients;
mod grant;
pub mod identities;
pub mod keys;
mod login;
pub mod provider;
pub mod records;
pub mod rules;
pub mod scope;
pub mod secrets;
pub mod tokens;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use whimbrel_engine::guard::{Pace, Throttle, ThrottleLimits, UserPace};

use crate::http::{Answer, Anyone, ApiError, Call, Route};
pub use rules::{Actor, Admin, ByClient, ByUser, Monitor, Orchestrator, User, UserCall};

/// New clients from the template that a network may have in a minute.
const TEMPLATED: u32 = 10;

/// Identities that one caller may make in an hour for people who are yet to come: more than two questions of the largest size.
const PROVISIONED: u32 = 500;
/// The time of that limit.
const HOUR: Duration = Duration::from_secs(3600);

/// Logins at another provider that a network may begin in a minute: universities are behind few addresses.
const DEPARTURES: u32 = 120;

/// Passwords that are verified at once.
const VERIFIED_AT_ONCE: usize = 2;
/// Passwords that wait for that; more are told to come again.
const WAITING: usize = 64;

/// What the issuer remembers while it runs.
pub struct Auth {
    memory: tokens::Memory,
    keys: keys::Keys,
    /// Another provider whose people may log in.
    pub provider: provider::Slot,
    throttle: Mutex<Throttle>,
    templated: Mutex<Pace>,
    departures: Mutex<Pace>,
    provisioned: Mutex<UserPace>,
    /// What of refused logins goes into the audit log.
    pub(crate) refusals: crate::audit::Refusals,
    /// Passwords that are verified at once: each takes 19 MiB.
    passwords: Semaphore,
    /// Those that wait for it, and those that are verified.
    verifying: AtomicUsize,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            memory: tokens::Memory::default(),
            keys: keys::Keys::default(),
            provider: provider::Slot::default(),
            throttle: Mutex::new(Throttle::new(ThrottleLimits::default())),
            templated: Mutex::new(Pace::new(Some(TEMPLATED))),
            departures: Mutex::new(Pace::new(Some(DEPARTURES))),
            provisioned: Mutex::new(UserPace::over(HOUR)),
            refusals: crate::audit::Refusals::default(),
            passwords: Semaphore::new(VERIFIED_AT_ONCE),
            verifying: AtomicUsize::new(0),
        }
    }
}

/// The right to verify a password.
struct Turn<'a> {
    _place: Place<'a>,
    _permit: SemaphorePermit<'a>,
}

/// A place among those who verify or wait, given back when it is dropped.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Auth {
    /// Waits for one's turn to have a password verified; 503 if too many wait already.
    async fn password_turn(&self) -> Result<Turn<'_>, ApiError> {
        let before = self.verifying.fetch_add(1, Ordering::SeqCst);
        let place = Place(&self.verifying);
        if before >= VERIFIED_AT_ONCE + WAITING {
            return Err(ApiError::unavailable("Too many people log in at this moment; try again"));
        }
        let permit = self.passwords.acquire().await.map_err(ApiError::internal)?;
        Ok(Turn { _place: place, _permit: permit })
    }

    /// Believes nothing any more that was found good a moment ago.
    pub fn forget(&self) {
        self.memory.forget();
    }
}

/// The issuer's routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/.well-known/openid-configuration", "openid_configuration", discovery),
        Route::get("/jwk.json", "jwks", jwks),
        Route::get("/v2/oauth2/authorize", "oauth2_authorize", login::show),
        Route::post("/v2/oauth2/authorize", "oauth2_login", login::submit),
        Route::get(provider::BACK, "oauth2_provider", provider::arrive),
        Route::get("/v2/web/auth-code", "oauth2_code", login::show_code),
        Route::post("/v2/oauth2/token", "oauth2_token", grant::token),
        Route::post("/v2/oauth2/token/introspect", "oauth2_introspect", grant::introspect),
        Route::post("/v2/oauth2/token/revoke", "oauth2_revoke", grant::revoke),
        Route::post("/v2/oauth2/token/validate", "oauth2_validate", grant::validate),
        Route::get("/v2/oauth2/userinfo", "oauth2_userinfo", identities::userinfo),
        Route::get("/v2/api/identities", "identities", identities::identities),
        Route::post("/v2/api/identities", "identity_add", identities::add),
        Route::put("/v2/whimbrel/identities/{id}", "identity_change", identities::change),
        Route::get("/v2/api/identities/{id}/consents", "identity_consents", identities::consents),
        Route::post("/v2/api/clients", "client_from_template", clients::from_template),
        Route::delete("/v2/api/clients/{id}", "client_remove", clients::remove_own),
        Route::post("/v2/whimbrel/clients", "client_add", clients::add),
    ]
}

/// OpenID Connect Discovery 1.0 §3, which is RFC 8414's, too.
async fn discovery(call: Call<Anyone>) -> Result<Answer<Value>, ApiError> {
    let url = call.service.issuer();
    Ok(Answer(json!({
        "issuer": url, "jwks_uri": format!("{url}/jwk.json"), "authorization_endpoint": format!("{url}/v2/oauth2/authorize"),
        "token_endpoint": format!("{url}/v2/oauth2/token"), "userinfo_endpoint": format!("{url}/v2/oauth2/userinfo"),
        "revocation_endpoint": format!("{url}/v2/oauth2/token/revoke"),
        "introspection_endpoint": format!("{url}/v2/oauth2/token/introspect"),
        "response_types_supported": ["code"], "response_modes_supported": ["query"], "subject_types_supported": ["public"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "id_token_signing_alg_values_supported": ["RS512"], "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "scopes_supported": ["openid", "profile", "email"],
        "claims_supported": ["iss", "sub", "aud", "exp", "iat", "name", "email", "preferred_username", "organization"],
    })))
}

async fn jwks(call: Call<Anyone>) -> Result<Answer<Value>, ApiError> {
    call.service.jwks().await.map(Answer)
}
