//! Who may call: the rules of routes that ask for a token or a client's secret.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64ct::{Base64, Encoding};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::records::{Client, Identity, Role};
use super::scope::{self, Orchestrate, Scope, TransferAll};
use crate::Service;
use crate::http::{Access, ApiError, Call, Knock, Rule};

/// Who shows a token, and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// In whose name.
    pub identity: Uuid,
    /// Their name with its domain.
    pub username: String,
    /// The program that shows it.
    pub client: Uuid,
    /// What it is for.
    pub scopes: Vec<String>,
    /// For whom it was made.
    pub resource_server: String,
    /// An administrator of the service, by its own settings.
    pub admin: bool,
    /// The client carries out tasks.
    pub orchestrator: bool,
    /// The end of the token.
    pub expires: Timestamp,
}

impl Actor {
    /// Whether the token is for a scope.
    pub fn has(&self, scope: &str) -> bool {
        self.scopes.iter().any(|given| given == scope)
    }
}

/// A user with a token of a scope.
#[derive(Debug)]
pub struct User<S>(PhantomData<S>);

impl<S: Scope> Rule for User<S> {
    type Caller = Arc<Actor>;
    const ACCESS: Access = Access::Scope(S::NAME);

    async fn admit(service: &Service, knock: &Knock) -> Result<Arc<Actor>, ApiError> {
        let actor = bearer(service, &knock.headers).await?;
        if actor.orchestrator || !(actor.has(S::NAME) || S::ALSO.iter().any(|scope| actor.has(scope))) {
            return Err(ApiError::denied(format!("The access token is not for {}", S::NAME)));
        }
        Ok(actor)
    }
}

/// A user with a token for transfers: who calls most routes.
pub type ByUser = User<TransferAll>;

/// A call of theirs.
pub type UserCall<I = ()> = Call<ByUser, I>;

/// An administrator of the service with a token of a scope.
#[derive(Debug)]
pub struct Admin<S>(PhantomData<S>);

impl<S: Scope> Rule for Admin<S> {
    type Caller = Arc<Actor>;
    const ACCESS: Access = Access::Admin(S::NAME);

    async fn admit(service: &Service, knock: &Knock) -> Result<Arc<Actor>, ApiError> {
        let actor = User::<S>::admit(service, knock).await?;
        if actor.admin { Ok(actor) } else { Err(ApiError::denied("Only administrators of this service may do that")) }
    }
}

/// An orchestrator with its own token.
#[derive(Debug)]
pub struct Orchestrator;

impl Rule for Orchestrator {
    type Caller = Arc<Actor>;
    const ACCESS: Access = Access::Orchestrator;

    async fn admit(service: &Service, knock: &Knock) -> Result<Arc<Actor>, ApiError> {
        let actor = bearer(service, &knock.headers).await?;
        if actor.orchestrator && actor.has(Orchestrate::NAME) {
            return Ok(actor);
        }
        Err(ApiError::denied("Only orchestrators may do that"))
    }
}

/// A program that collects metrics with its own token, or an administrator.
#[derive(Debug)]
pub struct Monitor;

impl Rule for Monitor {
    type Caller = Arc<Actor>;
    const ACCESS: Access = Access::Monitor;

    async fn admit(service: &Service, knock: &Knock) -> Result<Arc<Actor>, ApiError> {
        let actor = bearer(service, &knock.headers).await?;
        if actor.has(scope::Monitor::NAME) || (actor.admin && actor.has(TransferAll::NAME)) {
            return Ok(actor);
        }
        Err(ApiError::denied("Only clients that an administrator made to collect metrics may do that"))
    }
}

/// A client by its own id and secret.
#[derive(Debug)]
pub struct ByClient;

impl Rule for ByClient {
    type Caller = Client;
    const ACCESS: Access = Access::Client;

    async fn admit(service: &Service, knock: &Knock) -> Result<Client, ApiError> {
        let (id, secret) =
            basic(&knock.headers).ok_or_else(|| invalid_client("The request shows no client (Basic)"))?;
        service.client_by_secret(knock.from, &id, &secret).await
    }
}

/// A user with a token of a scope, or a program by its own id and secret: it could have such a token for the asking.
#[derive(Debug)]
pub struct UserOrClient<S>(PhantomData<S>);

impl<S: Scope> Rule for UserOrClient<S> {
    type Caller = Uuid;
    const ACCESS: Access = Access::ScopeOrClient(S::NAME);

    async fn admit(service: &Service, knock: &Knock) -> Result<Uuid, ApiError> {
        if basic(&knock.headers).is_none() {
            return User::<S>::admit(service, knock).await.map(|actor| actor.identity);
        }
        let client = ByClient::admit(service, knock).await?;
        match client.role {
            Role::Program if !client.acts_for(client.id) => {
                Err(ApiError::denied("A client of the command line's kind asks with the tokens of its user"))
            }
            Role::Program => Ok(client.id),
            Role::Orchestrator | Role::Monitor => Err(ApiError::denied("The client is for its own work only")),
        }
    }
}

/// 401 of RFC 6749 §5.2.
pub fn invalid_client(description: &str) -> ApiError {
    ApiError::oauth(axum::http::StatusCode::UNAUTHORIZED, "invalid_client", description)
}

async fn bearer(service: &Service, headers: &HeaderMap) -> Result<Arc<Actor>, ApiError> {
    let token =
        bearer_text(headers).ok_or_else(|| ApiError::unauthenticated("The request shows no access token (Bearer)"))?;
    let unknown = || ApiError::unauthenticated("The access token is unknown, revoked or has expired");
    service.actor(token).await?.ok_or_else(unknown)
}

pub(crate) fn bearer_text(headers: &HeaderMap) -> Option<&str> {
    scheme(headers, "bearer")
}

fn scheme<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (scheme, rest) = values.next()?.to_str().ok()?.split_once(' ')?;
    // Two of them would let two readers see different ones.
    (values.next().is_none() && scheme.eq_ignore_ascii_case(wanted)).then_some(rest.trim())
}

/// Id and secret of a client (RFC 7617; both are form-encoded, RFC 6749 §2.3.1, which changes nothing in ours).
pub fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let text = String::from_utf8(Base64::decode_vec(scheme(headers, "basic")?).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((id.to_owned(), secret.to_owned()))
}

impl Actor {
    /// What a good token says.
    pub(super) fn new(token: super::records::Token, identity: Identity, client: &Client) -> Self {
        Self {
            identity: identity.id,
            username: identity.username,
            client: token.client,
            scopes: token.scopes,
            resource_server: token.resource_server,
            admin: identity.admin,
            orchestrator: client.role == Role::Orchestrator,
            expires: token.expires,
        }
    }
}
