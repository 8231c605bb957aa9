//! Good answers: documents, pages for people, and ways elsewhere.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;
use whimbrel_web::RequestId;

use super::query::{Fields, Query};
use super::{ApiError, route};

/// Which request is answered, and how.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its id.
    pub request: RequestId,
    /// What was asked for: the path without the API's version.
    pub resource: String,
    /// Which fields of documents are wanted.
    pub fields: Fields,
}

impl Place {
    /// That of a request.
    pub fn of(request: &Request) -> Self {
        let path = request.uri().path();
        let resource = path.strip_prefix("/v0.10").unwrap_or(path).to_owned();
        let query = Query::parse(request.uri().query().unwrap_or_default().as_bytes());
        Self { request: route::id_of(request), resource, fields: Fields::of(&query) }
    }
}

/// What a handler answers.
pub trait Reply: Send {
    /// The answer.
    fn into_response(self, place: &Place) -> Response<Body>;

    /// Status, media type and schema.
    fn schema(generator: &mut SchemaGenerator) -> (StatusCode, &'static str, Option<Schema>);
}

/// A JSON document with a status.
#[derive(Debug, Clone)]
pub struct Answer<T, const STATUS: u16 = 200>(pub T);

/// A document about something that was made (201).
pub type Created<T> = Answer<T, 201>;
/// A document about something that will be done (202).
pub type Accepted<T> = Answer<T, 202>;

impl<T: Serialize + JsonSchema + Send, const STATUS: u16> Reply for Answer<T, STATUS> {
    fn into_response(self, place: &Place) -> Response<Body> {
        let mut document = match serde_json::to_value(&self.0) {
            Ok(document) => document,
            Err(error) => return ApiError::internal(error).into_response(place.request, &place.resource),
        };
        place.fields.apply(&mut document);
        json(StatusCode::from_u16(STATUS).expect("statuses of tables are valid"), &document)
    }

    fn schema(generator: &mut SchemaGenerator) -> (StatusCode, &'static str, Option<Schema>) {
        let status = StatusCode::from_u16(STATUS).expect("statuses of tables are valid");
        (status, "application/json", Some(generator.subschema_for::<T>()))
    }
}

fn json(status: StatusCode, document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(document.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Documents are somebody's own, some are secrets (RFC 6749 §5.1).
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

/// The Transfer API's answer to something that was done.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Done {
    /// `result`.
    #[serde(rename = "DATA_TYPE")]
    pub data_type: &'static str,
    /// What programs go by (`Updated`).
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// The request's id.
    pub request_id: String,
    /// What was asked for.
    pub resource: String,
}

impl Done {
    /// The answer to a request.
    pub fn new(place: &Place, code: &'static str, message: impl Into<String>) -> Self {
        let (request_id, resource) = (place.request.to_string(), place.resource.clone());
        Self { data_type: "result", code, message: message.into(), request_id, resource }
    }
}

/// Events that come as they happen (`text/event-stream`, HTML Standard §9.2).
pub struct Events(pub Body);

impl Reply for Events {
    fn into_response(self, _: &Place) -> Response<Body> {
        told("text/event-stream", self.0)
    }

    fn schema(_: &mut SchemaGenerator) -> (StatusCode, &'static str, Option<Schema>) {
        (StatusCode::OK, "text/event-stream", None)
    }
}

/// The connection goes on as this protocol (101).
pub struct Switching(pub &'static str);

impl Reply for Switching {
    fn into_response(self, _: &Place) -> Response<Body> {
        whimbrel_web::upgrade::switching(self.0)
    }

    fn schema(_: &mut SchemaGenerator) -> (StatusCode, &'static str, Option<Schema>) {
        (StatusCode::SWITCHING_PROTOCOLS, "application/octet-stream", None)
    }
}

/// JSON documents, one a line.
pub struct Lines(pub Body);

impl Reply for Lines {
    fn into_response(self, _: &Place) -> Response<Body> {
        told("application/x-ndjson", self.0)
    }

    fn schema(_: &mut SchemaGenerator) -> (StatusCode, &'static str, Option<Schema>) {
        (StatusCode::OK, "application/x-ndjson", None)
    }
}

/// Numbers in the text format of Prometheus.
pub struct Metrics(pub String);

impl Reply for Metrics {
    fn into_response(self, _: &Place) -> Response<Body> {
        told("text/plain; version=0.0.4; charset=utf-8", Body::from(self.0))
    }

    fn schema(_: &mut SchemaGenerator) -> (StatusCode, &'static str, Option<Schema>) {
        (StatusCode::OK, "text/plain", None)
    }
}

fn told(media: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

/// A page for a browser, or a way elsewhere; it runs nothing, sends forms only where it says, and is shown in no frame.
#[derive(Debug, Clone)]
pub enum Page {
    /// HTML.
    Html {
        /// Status.
        status: StatusCode,
        /// The page.
        html: String,
        /// A cookie to set.
        cookie: Option<String>,
        /// Where its form may lead, besides here.
        form_to: Option<String>,
    },
    /// 303: the browser goes there.
    See {
        /// Where.
        location: String,
        /// A cookie to set.
        cookie: Option<String>,
    },
}

impl Reply for Page {
    fn into_response(self, _: &Place) -> Response<Body> {
        let (mut response, cookie, form_to) = match self {
            Self::Html { status, html, cookie, form_to } => {
                let mut response = Response::new(Body::from(html));
                *response.status_mut() = status;
                let html = HeaderValue::from_static("text/html; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, html);
                (response, cookie, form_to)
            }
            Self::See { location, cookie } => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::SEE_OTHER;
                if let Ok(location) = HeaderValue::from_str(&location) {
                    response.headers_mut().insert(LOCATION, location);
                }
                (response, cookie, None)
            }
        };
        let policy = format!(
            "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'{}{}; frame-ancestors 'none'; base-uri 'none'",
            if form_to.is_some() { " " } else { "" },
            form_to.unwrap_or_default(),
        );
        let policy = HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
        let headers = response.headers_mut();
        for (name, value) in [
            ("content-security-policy", policy),
            ("x-frame-options", HeaderValue::from_static("DENY")),
            ("referrer-policy", HeaderValue::from_static("no-referrer")),
            ("x-content-type-options", HeaderValue::from_static("nosniff")),
        ] {
            headers.insert(HeaderName::from_static(name), value);
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok()) {
            headers.insert(axum::http::header::SET_COOKIE, cookie);
        }
        response
    }

    fn schema(_: &mut SchemaGenerator) -> (StatusCode, &'static str, Option<Schema>) {
        (StatusCode::OK, "text/html", None)
    }
}
