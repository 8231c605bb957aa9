//! What users are told when something is refused: the Transfer API's error documents, and OAuth2's.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use whimbrel_web::{BodyError, RequestId};

use crate::store::StoreError;

/// A refusal or failure. Clients look at its status and its code; people read its message.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// What programs go by (`EndpointNotFound`).
    pub code: Cow<'static, str>,
    /// For people.
    pub message: String,
    /// Further fields of the document.
    pub more: Map<String, Value>,
    /// OAuth2's document in place of the Transfer API's.
    pub oauth: bool,
    /// After so many seconds it may be tried again.
    pub retry_after: Option<u32>,
}

impl ApiError {
    /// An error with a status, a code and a message.
    pub fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { status, code: code.into(), message: message.into(), more: Map::new(), oauth: false, retry_after: None }
    }

    /// 400: the request is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "ClientError.BadRequest", message)
    }

    /// 401: there is no token, or it is not good; clients get a new one and try again.
    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "AuthenticationFailed", message)
    }

    /// 403: the caller may not.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "PermissionDenied", message)
    }

    /// 403: the caller has not consented; asking for a token with these scopes is consent.
    pub fn consent_required(message: impl Into<String>, scopes: &[String]) -> Self {
        Self::new(StatusCode::FORBIDDEN, "ConsentRequired", message).with("required_scopes", json!(scopes))
    }

    /// 404: there is no such thing; `code` says what kind (`EndpointNotFound`).
    pub fn not_found(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// 404: there is no such endpoint or collection, or the caller may not know of it.
    pub fn no_endpoint(id: impl std::fmt::Display) -> Self {
        Self::not_found("EndpointNotFound", format!("No such endpoint or collection: {id}"))
    }

    /// 409: it does not go together with what is there.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    /// 413: more than is taken.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "ClientError.RequestTooLarge", message)
    }

    /// 429: too often.
    pub fn too_many(retry_after: u32, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "ClientError.TooManyRequests", message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// 503: not now; clients try again by themselves.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// 500: a bug of ours. What happened is logged, not told.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!("internal error: {cause}");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "The service failed; its log has the reason under the request id",
        )
    }

    /// OAuth2's own form (RFC 6749 §5.2).
    pub fn oauth(status: StatusCode, error: &'static str, description: impl Into<String>) -> Self {
        Self { oauth: true, ..Self::new(status, error, description) }
    }

    /// Adds a field to the document.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.more.insert(field.to_owned(), value);
        self
    }

    /// The answer; `resource` is the path that was asked for.
    pub fn into_response(self, id: RequestId, resource: &str) -> Response<Body> {
        let mut document = self.more;
        if self.oauth {
            document.insert("error".to_owned(), json!(self.code));
            document.insert("error_description".to_owned(), json!(self.message));
        } else {
            document.insert("code".to_owned(), json!(self.code));
            document.insert("message".to_owned(), json!(self.message));
            document.insert("request_id".to_owned(), json!(id.as_str()));
            document.insert("resource".to_owned(), json!(resource));
        }
        let mut response = Response::new(Body::from(Value::Object(document).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::UNAUTHORIZED {
            // RFC 9110 §11.6.1: a 401 names a way to log in.
            let scheme = if self.oauth { "Basic realm=\"whimbrel\"" } else { "Bearer" };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let (status, code) = error.answer();
        Self::new(status, code, error.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict(what) => {
                Self::conflict(format!("Somebody else was faster: {what}; look again and try again"))
            }
            StoreError::Unavailable(_) => Self::unavailable("The service's database does not answer; try again later"),
            StoreError::Invalid(what) => Self::bad_request(what),
            other => Self::internal(other),
        }
    }
}
