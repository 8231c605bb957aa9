//! Requests over HTTPS, and what is done with files of collections.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::Op;
use whimbrel_web::RequestId;

use super::answer::Refusal;
use super::flow::{self, Broken, Outflow};
use super::judge::{Grant, Judge};
use super::range::Part;
use super::sessions::{Found, Session, Sessions};
use super::spot::{Spot, encoded};
use super::{Settings, date, manager};

/// What all requests share.
pub(super) struct Door {
    pub(super) judge: Judge,
    sessions: Arc<Sessions>,
    issuer: String,
    pub(super) endpoint: String,
    encrypt: bool,
}

/// All that is served.
pub(super) fn router(settings: Settings) -> Result<Router, Fault> {
    let door = Arc::new(Door {
        judge: Judge::new(&settings)?,
        sessions: Sessions::new(&settings)?,
        issuer: settings.issuer.clone(),
        endpoint: settings.endpoint.clone(),
        encrypt: settings.encrypt_data,
    });
    Ok(Router::new().fallback(move |request: Request| answer(door.clone(), request)))
}

async fn answer(door: Arc<Door>, request: Request) -> Response<Body> {
    let id = request.extensions().get::<RequestId>().copied().unwrap_or_else(RequestId::random);
    if let Some(path) = manager::path_of(&request) {
        return manager::answer(&door, &path, request).await;
    }
    door.file(request).await.unwrap_or_else(|refusal| refusal.into_response(id))
}

/// The token that a request shows.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let Some(field) = fields.next() else { return Ok(None) };
    let wrong =
        || Refusal::new(StatusCode::UNAUTHORIZED, "AuthenticationFailed", "The request shows no access token (Bearer)");
    let (scheme, token) = field.to_str().ok().and_then(|field| field.split_once(' ')).ok_or_else(wrong)?;
    // Two of them would let two readers see different ones.
    let fits = fields.next().is_none() && scheme.eq_ignore_ascii_case("bearer");
    if fits { Ok(Some(token.trim())) } else { Err(wrong()) }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

impl Door {
    async fn file(&self, request: Request) -> Result<Response<Body>, Refusal> {
        let spot = Spot::of(request.uri().path()).ok_or_else(Refusal::not_found)?;
        let write = match *request.method() {
            Method::GET | Method::HEAD => false,
            Method::PUT | Method::DELETE => true,
            _ => {
                let message = "Files are read with GET, stored with PUT, and removed with DELETE";
                return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "ClientError.MethodNotAllowed", message));
            }
        };
        let token = bearer(request.headers())?;
        let admitted = self.judge.admit(token, spot.collection, &spot.path, write).await;
        let grant = admitted.map_err(|refusal| match refusal.status {
            // How the public client finds out which collection a URL is of.
            StatusCode::UNAUTHORIZED => refusal.at(self.login(&spot)),
            _ => refusal,
        })?;
        let (session, found) = self.look(&grant).await?;
        match *request.method() {
            Method::PUT => self.put(&grant, session, found, request).await,
            Method::DELETE => self.delete(&grant, session, found, request.headers()).await,
            _ => self.get(&grant, session, found, &spot, request).await,
        }
    }

    fn login(&self, spot: &Spot) -> String {
        let (issuer, id) = (&self.issuer, spot.collection);
        let scope = encoded(&format!("https://auth.globus.org/scopes/{id}/https"));
        format!("{issuer}/v2/oauth2/authorize?response_type=code&client_id={id}&scope={scope}")
    }

    async fn look(&self, grant: &Grant) -> Result<(Session, Option<Found>), Refusal> {
        // A slash at the end says that a directory is meant, which is found all the same.
        let path = grant.path.strip_suffix(b"/").filter(|path| !path.is_empty()).unwrap_or(&grant.path);
        self.sessions
            .look((&grant.token, grant.account.as_deref()), path)
            .await
            .map_err(|fault| Refusal::of_file(&fault))
    }

    async fn get(
        &self,
        grant: &Grant,
        session: Session,
        found: Option<Found>,
        spot: &Spot,
        request: Request,
    ) -> Result<Response<Body>, Refusal> {
        let Some(found) = found else {
            session.keep();
            return Err(Refusal::not_found());
        };
        if found.is_directory || grant.path.ends_with(b"/") {
            session.keep();
            return Err(is_directory("Directories are listed with the Transfer API"));
        }
        let (headers, tag) = (request.headers(), etag(&found));
        if text(headers, IF_NONE_MATCH).is_some_and(|tags| names(tags, &tag)) {
            session.keep();
            return Ok(head(StatusCode::NOT_MODIFIED, &found, Body::empty()));
        }
        // Of another state of the file a part is of no use.
        let same = text(headers, IF_RANGE).is_none_or(|known| known == tag || known == date::http(found.modified.0));
        let part = Part::of(text(headers, RANGE).filter(|_| same), found.size);
        let (status, bytes) = match part {
            Part::Whole => (StatusCode::OK, 0..found.size),
            Part::Bytes(bytes) => (StatusCode::PARTIAL_CONTENT, bytes),
            Part::Beyond => {
                session.keep();
                let mut response = head(StatusCode::RANGE_NOT_SATISFIABLE, &found, Body::empty());
                set(&mut response, CONTENT_RANGE, &format!("bytes */{}", found.size));
                return Ok(response);
            }
        };
        let length = bytes.end - bytes.start;
        let range = format!("bytes {}-{}/{}", bytes.start, bytes.end.saturating_sub(1), found.size);
        let body = if request.method() == Method::HEAD || length == 0 {
            session.keep();
            Body::empty()
        } else {
            let flow = Outflow::open(session, &grant.path, bytes, self.encrypt).await;
            let body = async { flow?.into_body(length).await }.await;
            body.map_err(|fault| Refusal::of_file(&fault))?
        };
        let mut response = head(status, &found, body);
        set(&mut response, CONTENT_LENGTH, &length.to_string());
        if status == StatusCode::PARTIAL_CONTENT {
            set(&mut response, CONTENT_RANGE, &range);
        }
        if request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "download")) {
            let name = format!("attachment; filename*=UTF-8''{}", encoded(spot.name()));
            set(&mut response, CONTENT_DISPOSITION, &name);
        }
        Ok(response)
    }

    async fn put(
        &self,
        grant: &Grant,
        session: Session,
        found: Option<Found>,
        request: Request,
    ) -> Result<Response<Body>, Refusal> {
        if grant.path.ends_with(b"/") || found.as_ref().is_some_and(|found| found.is_directory) {
            session.keep();
            return Err(is_directory("A directory cannot be replaced by a file"));
        }
        let headers = request.headers();
        // A part would be stored as if it were all (RFC 9110 §14.5).
        if headers.contains_key(CONTENT_RANGE) {
            session.keep();
            return Err(Refusal::bad_request("Files are stored whole: Content-Range is not taken"));
        }
        if let Err(refusal) = expected(headers, found.as_ref()) {
            session.keep();
            return Err(refusal);
        }
        let size = text(headers, CONTENT_LENGTH).and_then(|size| size.parse().ok());
        let status = if found.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
        let stored = flow::store(session, &grant.path, size, request.into_body(), self.encrypt).await;
        stored.map_err(|broken| match broken {
            Broken::Client(why) => Refusal::bad_request(format!("{why}; nothing is stored")),
            Broken::Server(fault) => Refusal::of_file(&fault),
        })?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        Ok(response)
    }

    async fn delete(
        &self,
        grant: &Grant,
        mut session: Session,
        found: Option<Found>,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Refusal> {
        let refusal = match &found {
            None => Some(Refusal::not_found()),
            Some(found) if found.is_directory => Some(is_directory("Directories are deleted by tasks")),
            Some(_) => expected(headers, found.as_ref()).err(),
        };
        if let Some(refusal) = refusal {
            session.keep();
            return Err(refusal);
        }
        session.remote.run(Op::Delete(grant.path.clone())).await.map_err(|fault| Refusal::of_file(&fault))?;
        session.keep();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }
}

fn is_directory(cure: &str) -> Refusal {
    let fault = Fault::new(FaultCode::IsADirectory, "serve");
    Refusal::new(StatusCode::CONFLICT, "Conflict", format!("{}. {cure}", fault.code.explain().meaning))
}

/// What stands there must be what the client means to change (RFC 9110 §13.1).
fn expected(headers: &HeaderMap, found: Option<&Found>) -> Result<(), Refusal> {
    let tag = found.map(etag);
    let is = |tags: &str| tag.as_ref().is_some_and(|tag| names(tags, tag));
    let wanted = text(headers, IF_MATCH).is_none_or(is);
    let unwanted = text(headers, IF_NONE_MATCH).is_some_and(is);
    if wanted && !unwanted {
        return Ok(());
    }
    let message = "The file is not in the state that the request asks for";
    Err(Refusal::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", message))
}

/// Names a state of a file, as far as size and time tell.
fn etag(found: &Found) -> String {
    format!("\"{:x}-{:x}-{:x}\"", found.size, found.modified.0, found.modified.1)
}

/// Whether a list of tags has one; `*` is any.
fn names(tags: &str, tag: &str) -> bool {
    tags.split(',').map(str::trim).any(|one| one == "*" || one == tag)
}

/// The head of an answer about a file. What it holds is a stranger's: no browser is to run it here.
fn head(status: StatusCode, found: &Found, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, "application/octet-stream"),
        (ACCEPT_RANGES, "bytes"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (ETAG, &etag(found)),
        (LAST_MODIFIED, &date::http(found.modified.0)),
    ] {
        set(&mut response, name, value);
    }
    response
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
