//! The bodies of requests: nothing, JSON, or a form.

use std::future::Future;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use tokio::sync::SemaphorePermit;
use whimbrel_web::{BodyLimits, body};

use super::large::Room;
use super::route::BODY;
use super::{ApiError, Query};

/// What a handler takes as its request's body.
pub trait Input: Sized + Send + 'static {
    /// Waits until there is room for it.
    fn room<'a>(_: &'a Room, _: &HeaderMap) -> impl Future<Output = Option<SemaphorePermit<'a>>> + Send {
        std::future::ready(None)
    }

    /// Reads it.
    ///
    /// # Errors
    /// 400 for what is none, 413 and 408 beyond the limits.
    fn read(headers: &HeaderMap, body: Body) -> impl Future<Output = Result<Self, ApiError>> + Send;

    /// Its media type and schema.
    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)>;
}

impl Input for () {
    async fn read(_: &HeaderMap, _: Body) -> Result<(), ApiError> {
        // What is sent nevertheless is not looked at: clients add empty documents.
        Ok(())
    }

    fn schema(_: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        None
    }
}

/// A JSON document of at most `MOST` bytes. Fields that its type does not know are ignored: clients send what they like.
#[derive(Debug, Clone)]
pub struct Json<T, const MOST: usize = { 1 << 20 }>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static, const MOST: usize> Input for Json<T, MOST> {
    async fn read(_: &HeaderMap, body: Body) -> Result<Self, ApiError> {
        let bytes = body::read(body, BodyLimits::of(MOST)).await?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| bad_json(&bytes, &error))
    }

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("application/json", generator.subschema_for::<T>()))
    }
}

pub(super) fn bad_json(bytes: &Bytes, error: &serde_json::Error) -> ApiError {
    if bytes.is_empty() {
        return ApiError::bad_request("The request needs a JSON document as its body");
    }
    let kind = if error.is_data() { "The document is not what is needed here" } else { "The body is no JSON document" };
    ApiError::bad_request(format!("{kind}: {error}"))
}

/// A form, as browsers and OAuth2 clients send it.
#[derive(Debug, Clone)]
pub struct Form(pub Query);

impl Input for Form {
    async fn read(headers: &HeaderMap, body: Body) -> Result<Self, ApiError> {
        let bytes = body::read(body, BODY).await?;
        let kind = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
        if !bytes.is_empty() && !kind.is_some_and(|kind| kind.starts_with(b"application/x-www-form-urlencoded")) {
            return Err(ApiError::bad_request("The body has to be a form (application/x-www-form-urlencoded)"));
        }
        Ok(Self(Query::parse(&bytes)))
    }

    fn schema(_: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("application/x-www-form-urlencoded", schemars::json_schema!({"type": "object"})))
    }
}
