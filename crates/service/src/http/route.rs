//! One table of routes, from which the router, the OpenAPI file and the test of refusals are made.
//!
//! A handler's argument is a [`Call`], whose first parameter is the [`Rule`] that says who may call; there is no other way to the
//! router, so no handler can be without one.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use axum::routing::{MethodFilter, MethodRouter};
use schemars::{Schema, SchemaGenerator};
use uuid::Uuid;
use whimbrel_web::{BodyLimits, Offer, Peer, RequestId};

use super::reply::{Place, Reply};
use super::{ApiError, Input, Query};
use crate::Service;

/// Who may call a route: what tests and documents say of its [`Rule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without a token; the handler itself asks for what it needs.
    Anyone,
    /// A client by its own id and secret (Basic).
    Client,
    /// A user, with an access token of this scope.
    Scope(&'static str),
    /// A user, with an access token of this scope, or a client by its own id and secret.
    ScopeOrClient(&'static str),
    /// An orchestrator, with its own token.
    Orchestrator,
    /// A DTN, with what it joins or has joined with.
    Server,
    /// Another replica of this service, with what it has told of itself in the store.
    Replica,
    /// A program that collects metrics, or an administrator.
    Monitor,
    /// A user whom the service's own settings call an administrator, with an access token of this scope.
    Admin(&'static str),
}

/// Who may call: what is asked of a request before its body is read, and what the handler learns of the caller.
pub trait Rule: Send + Sync + 'static {
    /// What the handler learns.
    type Caller: Send + 'static;
    /// The rule in a word.
    const ACCESS: Access;

    /// Lets a request in.
    ///
    /// # Errors
    /// 401 without good credentials, 403 if they are not enough.
    fn admit(service: &Service, knock: &Knock) -> impl Future<Output = Result<Self::Caller, ApiError>> + Send;
}

/// What is known of a request before its body is read.
#[derive(Debug, Clone)]
pub struct Knock {
    /// Where it comes from.
    pub from: IpAddr,
    /// Its header fields.
    pub headers: HeaderMap,
    /// What its connection may go on as.
    pub offer: Option<Offer>,
}

/// [`Access::Anyone`].
#[derive(Debug)]
pub struct Anyone;

impl Rule for Anyone {
    type Caller = ();
    const ACCESS: Access = Access::Anyone;

    async fn admit(_: &Service, _: &Knock) -> Result<(), ApiError> {
        Ok(())
    }
}

/// A request that was let in.
pub struct Call<R: Rule, I = ()> {
    /// The service.
    pub service: Arc<Service>,
    /// Who calls.
    pub caller: R::Caller,
    /// Parts of the path that stand for something.
    pub path: PathParams,
    /// What stands behind the question mark.
    pub query: Query,
    /// The body.
    pub body: I,
    /// What was known before it was read.
    pub knock: Knock,
    /// Where it is to be answered.
    pub place: Place,
}

/// The parts of a path that stand for something, by name.
#[derive(Debug, Clone, Default)]
pub struct PathParams(BTreeMap<String, String>);

impl PathParams {
    /// A part as it came, percent-decoded.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A part that is a UUID.
    ///
    /// # Errors
    /// 404 with this code: what has no such name is not there.
    pub fn id(&self, name: &str, code: &'static str) -> Result<Uuid, ApiError> {
        let text = self.text(name);
        Uuid::try_parse(text)
            .map_err(|_| ApiError::not_found(code, format!("{text:?} is no id (a UUID) of anything here")))
    }
}

type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Handler = Arc<dyn Fn(Arc<Service>, PathParams, Request) -> Answering + Send + Sync>;

/// One line of the table.
#[derive(Clone)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path; `{name}` stands for something.
    pub path: &'static str,
    /// What tells it from the others, in documents.
    pub name: &'static str,
    /// Who may call it.
    pub access: Access,
    /// Media type and schema of the body; `None`: it has none.
    pub request: fn(&mut SchemaGenerator) -> Option<(&'static str, Schema)>,
    /// Status, media type and schema of a good answer.
    pub response: fn(&mut SchemaGenerator) -> (StatusCode, &'static str, Option<Schema>),
    handler: Handler,
}

impl Route {
    /// A route that reads.
    pub fn get<R: Rule, I: Input, P: Reply, F: Future<Output = Result<P, ApiError>> + Send + 'static>(
        path: &'static str,
        name: &'static str,
        handler: impl Fn(Call<R, I>) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(Method::GET, path, name, handler)
    }

    /// A route that makes or does something.
    pub fn post<R: Rule, I: Input, P: Reply, F: Future<Output = Result<P, ApiError>> + Send + 'static>(
        path: &'static str,
        name: &'static str,
        handler: impl Fn(Call<R, I>) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(Method::POST, path, name, handler)
    }

    /// A route that changes something.
    pub fn put<R: Rule, I: Input, P: Reply, F: Future<Output = Result<P, ApiError>> + Send + 'static>(
        path: &'static str,
        name: &'static str,
        handler: impl Fn(Call<R, I>) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(Method::PUT, path, name, handler)
    }

    /// A route that takes something away.
    pub fn delete<R: Rule, I: Input, P: Reply, F: Future<Output = Result<P, ApiError>> + Send + 'static>(
        path: &'static str,
        name: &'static str,
        handler: impl Fn(Call<R, I>) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(Method::DELETE, path, name, handler)
    }

    /// A route.
    pub fn new<R: Rule, I: Input, P: Reply, F: Future<Output = Result<P, ApiError>> + Send + 'static>(
        method: Method,
        path: &'static str,
        name: &'static str,
        handler: impl Fn(Call<R, I>) -> F + Send + Sync + 'static,
    ) -> Self {
        let handler = Arc::new(handler);
        let boxed: Handler = Arc::new(move |service, path, request| {
            let handler = handler.clone();
            Box::pin(async move {
                let began = Instant::now();
                let response = answer::<R, I, P, F>(service.clone(), path, request, &*handler).await;
                service.requests.count(name, response.status(), began.elapsed());
                response
            })
        });
        Self { method, path, name, access: R::ACCESS, request: I::schema, response: P::schema, handler: boxed }
    }
}

async fn answer<R: Rule, I: Input, P: Reply, F: Future<Output = Result<P, ApiError>> + Send>(
    service: Arc<Service>,
    path: PathParams,
    request: Request,
    handler: &(impl Fn(Call<R, I>) -> F + Send + Sync),
) -> Response<Body> {
    let place = Place::of(&request);
    let outcome = async {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let from = parts.extensions.get::<Peer>().map_or(IpAddr::from([0; 4]), |peer| peer.address.ip());
        let offer = Offer::of(&parts);
        let knock = Knock { from, headers: parts.headers, offer };
        // Strangers are refused before anything of a body is kept.
        let caller = R::admit(&service, &knock).await?;
        let _room = I::room(&service.room, &knock.headers).await;
        let body = I::read(&knock.headers, body).await?;
        handler(Call { service: service.clone(), caller, path, query, body, knock, place: place.clone() }).await
    };
    match outcome.await {
        Ok(reply) => reply.into_response(&place),
        Err(error) => error.into_response(place.request, &place.resource),
    }
}

/// The router of a table.
pub fn router(service: &Arc<Service>, routes: &[Route]) -> Router {
    let mut by_path: BTreeMap<&'static str, MethodRouter> = BTreeMap::new();
    for route in routes {
        let (service, handler) = (service.clone(), route.handler.clone());
        let filter = MethodFilter::try_from(route.method.clone()).expect("tables have common methods only");
        let answering = move |params: Result<RawPathParams, _>, request: Request| {
            let path = PathParams(params.ok().map(collected).unwrap_or_default());
            handler(service.clone(), path, request)
        };
        let methods = by_path.remove(route.path).unwrap_or_default().on(filter, answering);
        by_path.insert(route.path, methods);
    }
    let router = by_path.into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    router.fallback(no_route).method_not_allowed_fallback(no_method)
}

fn collected(params: RawPathParams) -> BTreeMap<String, String> {
    params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn no_route(request: Request) -> Response<Body> {
    let place = Place::of(&request);
    ApiError::not_found("ClientError.NotFound", format!("No such resource: {}", request.uri().path()))
        .into_response(place.request, &place.resource)
}

async fn no_method(request: Request) -> Response<Body> {
    let place = Place::of(&request);
    let message = format!("{} is not for {}", request.method(), request.uri().path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "ClientError.MethodNotAllowed", message)
        .into_response(place.request, &place.resource)
}

/// A request's id, from the server or new.
pub(super) fn id_of(request: &Request) -> RequestId {
    request.extensions().get().copied().unwrap_or_else(RequestId::random)
}

/// Largest body where nothing else is said, bytes.
pub const BODY: BodyLimits = BodyLimits::of(1 << 20);
