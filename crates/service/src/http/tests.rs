//! The table of routes as clients see it.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use http_body_util::BodyExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_service::Service as _;

use super::*;
use crate::Service;
use crate::clock::SetClock;

#[derive(Debug, Deserialize, JsonSchema)]
struct Wish {
    name: String,
    #[serde(default)]
    count: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Echo {
    name: String,
    count: u32,
    of: String,
}

/// Refuses everybody.
struct Nobody;

impl Rule for Nobody {
    type Caller = ();
    const ACCESS: Access = Access::Scope("nothing");

    async fn admit(_: &Service, _: &Knock) -> Result<(), ApiError> {
        Err(ApiError::unauthenticated("There is no token"))
    }
}

async fn echo(call: Call<Anyone, Json<Wish>>) -> Result<Created<Echo>, ApiError> {
    let Wish { name, count } = call.body.0;
    Ok(Answer(Echo { name, count, of: call.path.text("thing").to_owned() }))
}

async fn closed(_: Call<Nobody, Json<Wish>>) -> Result<Answer<Echo>, ApiError> {
    Err(ApiError::bad_request("nobody comes here"))
}

async fn by_id(call: Call<Anyone>) -> Result<Answer<Done>, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    Ok(Answer(Done::new(&call.place, "Found", id.to_string())))
}

async fn ask(method: Method, path: &str, body: &str) -> (u16, Value) {
    let routes = [
        Route::post("/v0.10/thing/{thing}", "thing_make", echo),
        Route::post("/closed", "closed", closed),
        Route::get("/v0.10/endpoint/{id}", "by_id", by_id),
    ];
    let mut router = router(&Arc::new(crate::testing::bare(Arc::new(SetClock::at(0))).await), &routes);
    let request = Request::builder().method(method).uri(path).body(Body::from(body.to_owned())).unwrap();
    let response = router.call(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn documents_are_read_and_answered_and_unknown_parts_ignored() {
    let (status, document) =
        ask(Method::POST, "/v0.10/thing/a%2Fb?colour=red", r#"{"name": "x", "additional": [1]}"#).await;
    assert_eq!((status, document), (201, json!({"name": "x", "count": 0, "of": "a/b"})));
    let (_, fewer) = ask(Method::POST, "/v0.10/thing/a?fields=name", r#"{"name": "x"}"#).await;
    assert_eq!(fewer, json!({"name": "x"}));
}

#[tokio::test]
async fn what_is_wrong_with_a_document_is_told() {
    for (body, part) in [
        ("", "needs a JSON document"),
        ("{", "no JSON document"),
        ("[]", "not what is needed"),
        (r#"{"name": 7}"#, "expected a string"),
        (r#"{"count": 7}"#, "missing field `name`"),
    ] {
        let (status, document) = ask(Method::POST, "/v0.10/thing/a", body).await;
        assert_eq!((status, &document["code"]), (400, &json!("ClientError.BadRequest")), "{body}");
        assert!(document["message"].as_str().unwrap().contains(part), "{body}: {document}");
        assert_eq!(document["request_id"].as_str().unwrap().len(), 9);
        assert_eq!(document["resource"], "/thing/a");
    }
    let large = format!("{{\"name\": \"{}\"}}", "x".repeat(1 << 20));
    assert_eq!(ask(Method::POST, "/v0.10/thing/a", &large).await.0, 413);
}

#[tokio::test]
async fn strangers_are_refused_before_their_documents_are_read() {
    let (status, document) = ask(Method::POST, "/closed", "{").await;
    assert_eq!((status, &document["code"]), (401, &json!("AuthenticationFailed")));
}

#[tokio::test]
async fn unknown_places_methods_and_ids_are_told_apart() {
    let told = |(status, document): (u16, Value)| (status, document["code"].as_str().unwrap_or_default().to_owned());
    assert_eq!(told(ask(Method::GET, "/v0.10/nothing", "").await), (404, "ClientError.NotFound".to_owned()));
    assert_eq!(told(ask(Method::PUT, "/closed", "").await), (405, "ClientError.MethodNotAllowed".to_owned()));
    assert_eq!(told(ask(Method::GET, "/v0.10/endpoint/x", "").await), (404, "EndpointNotFound".to_owned()));
    let id = "aaaaaaaa-0000-4000-8000-00000000000a";
    assert_eq!(told(ask(Method::GET, &format!("/v0.10/endpoint/{id}"), "").await), (200, "Found".to_owned()));
}
