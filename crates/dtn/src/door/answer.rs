//! What clients over HTTPS are told.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_web::{BodyError, RequestId};

/// Why a request is not carried out.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: String,
    pub(super) message: String,
    /// Further fields of the document.
    more: Map<String, Value>,
    /// Where a browser would log in.
    location: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), more: Map::new(), location: None }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "ClientError.BadRequest", message)
    }

    /// The words are always the same: clients look for markers in what is said with this status, and names of files may hold any.
    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "There is no such file or collection, or you may not know of it")
    }

    /// Not now; clients try again by themselves.
    pub(super) fn unavailable(fault: &Fault) -> Self {
        tracing::warn!(%fault, "a request over HTTPS has to wait");
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            "This cannot be done now; try again in a moment",
        )
    }

    /// What the service says of a user.
    pub(super) fn of_service(document: &Value) -> Self {
        let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
        let status = document["status"].as_u64().and_then(|status| StatusCode::from_u16(status.try_into().ok()?).ok());
        match status {
            Some(StatusCode::NOT_FOUND) => Self::not_found(),
            status => {
                let mut more = document.as_object().cloned().unwrap_or_default();
                more.retain(|name, _| !["status", "code", "message"].contains(&name.as_str()));
                let status = status.unwrap_or(StatusCode::FORBIDDEN);
                Self { more, ..Self::new(status, &text("code"), text("message")) }
            }
        }
    }

    /// What this server's own control port says of a file.
    pub(super) fn of_file(fault: &Fault) -> Self {
        use FaultCode as F;
        let said = |status, code| Self::new(status, code, fault.to_string());
        match fault.code {
            F::NotFound | F::NotADirectory => Self::not_found(),
            F::PermissionDenied | F::NotAuthorized | F::ReadOnly => said(StatusCode::FORBIDDEN, "PermissionDenied"),
            F::LoginFailed | F::CredentialRejected => said(StatusCode::FORBIDDEN, "LoginFailed"),
            F::InvalidPath | F::InvalidArgument => said(StatusCode::BAD_REQUEST, "ClientError.BadRequest"),
            F::IsADirectory | F::AlreadyExists | F::DirectoryNotEmpty => said(StatusCode::CONFLICT, "Conflict"),
            F::NoSpace | F::QuotaExceeded => said(StatusCode::INSUFFICIENT_STORAGE, "NoSpace"),
            F::FileTooLarge => said(StatusCode::PAYLOAD_TOO_LARGE, "FileTooLarge"),
            _ if fault.is_temporary() => Self::unavailable(fault),
            _ => said(StatusCode::BAD_GATEWAY, "EndpointError"),
        }
    }

    /// A further field of the document.
    pub(super) fn field(&self, name: &str) -> Option<&Value> {
        self.more.get(name)
    }

    /// Says to a browser, and to the public client, where one logs in.
    #[must_use]
    pub(super) fn at(self, location: String) -> Self {
        Self { location: Some(location), ..self }
    }

    pub(super) fn into_response(self, id: RequestId) -> Response<Body> {
        let mut document = self.more;
        document.insert("code".to_owned(), json!(self.code));
        document.insert("message".to_owned(), json!(self.message));
        document.insert("request_id".to_owned(), json!(id.as_str()));
        let mut response = json_response(self.status, &Value::Object(document));
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(location) = self.location.and_then(|location| HeaderValue::from_str(&location).ok()) {
            headers.insert(LOCATION, location);
        }
        response
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        let (status, code) = error.answer();
        Self::new(status, code, error.to_string())
    }
}

/// A JSON document that nobody keeps.
pub(super) fn json_response(status: StatusCode, document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(document.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is really missing has to be told from what a client tries again.
    #[test]
    fn nothing_that_is_missing_looks_as_if_it_were_a_failure_of_ours() {
        let fault = Fault::new(FaultCode::NotFound, "describe").subject("/ENDPOINT_ERROR").detail("INTERNAL_ERROR");
        let refusals =
            [Refusal::of_file(&fault), Refusal::of_service(&json!({"status": 404, "message": "INTERNAL_ERROR"}))];
        for refusal in refusals {
            assert_eq!(refusal.status, StatusCode::NOT_FOUND);
            for marker in ["ENDPOINT_ERROR", "INTERNAL_ERROR", "GCS Manager Internal Error"] {
                assert!(!refusal.message.contains(marker) && !refusal.code.contains(marker));
            }
        }
    }
}
