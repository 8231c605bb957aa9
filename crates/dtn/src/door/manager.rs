//! The manager's API: requests are passed on to the service, in the name of the caller and with this server's secret.
//!
//! It ends TLS here so that what is a secret of somebody's storage ends here, too.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Response, StatusCode};
use serde_json::{Map, Value, json};
use whimbrel_web::{BodyLimits, body};

use super::answer::{Refusal, json_response};
use super::spot::decoded;
use super::web::{Door, bearer};

/// The manager's part of the name space.
const API: &str = "/api";

/// Largest document, bytes.
const MOST: usize = 1 << 20;

/// The version of the manager's API whose documents these are.
const VERSION: &str = "1.20.0";

/// The connector of storage with files and accounts.
const POSIX: &str = "145812c8-decc-41f1-83cf-bb2a85a2a70b";

/// The path behind `/api`; `None`: the request is for a file.
pub(super) fn path_of(request: &Request) -> Option<String> {
    let rest = request.uri().path().strip_prefix(API)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_end_matches('/').to_owned())
}

/// Answers a request with the manager's kind of document, be it a refusal.
pub(super) async fn answer(door: &Door, path: &str, request: Request) -> Response<Body> {
    match carry_out(door, path, request).await {
        Ok(document) => {
            let status = document["http_response_code"].as_u64().and_then(|status| u16::try_from(status).ok());
            let status = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
            json_response(status, &document)
        }
        Err(refusal) => json_response(refusal.status, &envelope(&refusal)),
    }
}

async fn carry_out(door: &Door, path: &str, request: Request) -> Result<Value, Refusal> {
    let (parts, content) = request.into_parts();
    if (path, &parts.method) == ("/info", &Method::GET) {
        return Ok(info(door));
    }
    let no_token =
        || Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", "The request shows no access token (Bearer)");
    let token = bearer(&parts.headers)?.ok_or_else(no_token)?;
    let bytes = body::read(content, BodyLimits::of(MOST)).await?;
    let document: Value = match bytes.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&bytes)
            .map_err(|error| Refusal::bad_request(format!("The body is no JSON document: {error}")))?,
    };
    if path.starts_with("/user_credentials") {
        no_secrets(&document)?;
    }
    let query = query(parts.uri.query().unwrap_or_default());
    let wish = json!({"token": token, "method": parts.method.as_str(), "path": path, "query": query, "body": document});
    door.judge.ask("manage", &wish).await
}

/// The storage here has accounts and no secrets: those of somebody's other storage are not taken, and go no further.
fn no_secrets(document: &Value) -> Result<(), Refusal> {
    let says =
        |policies: &Map<String, Value>| policies.iter().any(|(name, value)| name != "DATA_TYPE" && !value.is_null());
    if document["policies"].as_object().is_some_and(says) {
        let message = "The storage of this endpoint takes no secrets, only the name of an account (username)";
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable_entity", message));
    }
    Ok(())
}

fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let read = |text: &str| decoded(&text.replace('+', " "));
    pairs.filter_map(|(name, value)| Some((read(name)?, read(value)?))).collect()
}

fn info(door: &Door) -> Value {
    let info = json!({"DATA_TYPE": "info#1.0.0", "api_version": VERSION, "client_id": door.endpoint,
                      "endpoint_id": door.endpoint, "domain_name": null, "manager_version": env!("CARGO_PKG_VERSION")});
    let connector = json!({"DATA_TYPE": "connector#1.1.0", "id": POSIX, "display_name": "POSIX",
                           "is_baa": false, "is_ha": false});
    json!({"DATA_TYPE": "result#1.0.0", "code": "success", "detail": "success", "http_response_code": 200,
           "data": [info, connector], "has_next_page": false, "message": "Operation successful"})
}

/// A refusal in the manager's words.
fn envelope(refusal: &Refusal) -> Value {
    let code = match refusal.status {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "permission_denied",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::CONFLICT => "resource_conflict",
        StatusCode::UNPROCESSABLE_ENTITY => "unprocessable_entity",
        StatusCode::SERVICE_UNAVAILABLE => "service_unavailable",
        _ => "bad_request",
    };
    let detail = refusal.field("detail").cloned().unwrap_or_else(|| json!(refusal.message));
    json!({"DATA_TYPE": "result#1.0.0", "code": code, "detail": detail, "data": [], "has_next_page": false,
           "http_response_code": refusal.status.as_u16(), "message": refusal.message})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_storage_go_no_further() {
        let s3 = json!({"username": "x", "policies": {"DATA_TYPE": "s3_user_credential_policies#1.0.0", "s3_secret_key": "k"}});
        assert_eq!(no_secrets(&s3).unwrap_err().status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(
            no_secrets(&json!({"username": "x", "policies": {"DATA_TYPE": "posix_user_credential_policies#1.0.0"}}))
                .is_ok()
        );
        assert!(no_secrets(&json!({"username": "x"})).is_ok() && no_secrets(&Value::Null).is_ok());
    }

    #[test]
    fn queries_are_decoded() {
        let query = query("filter=mapped_collections%2Ccreated_by_me&marker=a+b&lonely");
        assert_eq!(query.get("filter").map(String::as_str), Some("mapped_collections,created_by_me"));
        assert_eq!((query.get("marker").map(String::as_str), query.len()), (Some("a b"), 2));
    }
}
