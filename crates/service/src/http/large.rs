//! Large documents of users: few are taken at once, and none that is small as text becomes large as a tree.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use whimbrel_web::{BodyLimits, body};

use super::input::{Input, bad_json};
use super::{ApiError, Json};

/// Largest document, bytes: 100,000 items with long paths.
const MOST: usize = 64 << 20;

/// Such documents as any route takes, bytes.
const SMALL: usize = 1 << 20;

/// Bytes of one that buy a second: those who send slowly keep others from sending.
const PACE: u32 = 16 << 10;

/// Largest tree, bytes: twice that of 100,000 items with all their fields.
const MOST_TREE: usize = 384 << 20;

/// Large ones that are read, and answered, at once.
const AT_ONCE: usize = 4;

/// A JSON document of at most 64 MiB.
#[derive(Debug, Clone)]
pub struct Large(pub Value);

/// Where large documents are waited for.
#[derive(Debug)]
pub struct Room(Semaphore);

impl Default for Room {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

impl Room {
    /// Waits until there is room for what these fields announce; `None`: it is small.
    async fn enter(&self, headers: &HeaderMap) -> Option<SemaphorePermit<'_>> {
        let length = headers.get(CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse::<usize>().ok());
        match length.is_some_and(|length| length <= SMALL) {
            true => None,
            false => Some(self.0.acquire().await.expect("nothing closes it")),
        }
    }
}

impl Input for Large {
    async fn room<'a>(room: &'a Room, headers: &HeaderMap) -> Option<SemaphorePermit<'a>> {
        room.enter(headers).await
    }

    async fn read(_: &HeaderMap, body: Body) -> Result<Self, ApiError> {
        let bytes = body::read(body, BodyLimits { bytes_per_second: PACE, ..BodyLimits::of(MOST) }).await?;
        if tree(&bytes) > MOST_TREE {
            return Err(ApiError::too_large("The document has more values than any that is needed here"));
        }
        serde_json::from_slice(&bytes).map(Self).map_err(|error| bad_json(&bytes, &error))
    }

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        <Json<Value> as Input>::schema(generator)
    }
}

/// Bytes of memory that a document is at most as a tree, beside those of its texts: a value has 32, a vector has room for four
/// of them, and an object's first node for eleven fields of 24 and 32 bytes. What looks alike within texts is counted, too.
fn tree(document: &[u8]) -> usize {
    const VALUE: usize = size_of::<Value>();
    document.iter().fold(0, |sum, byte| {
        sum + match byte {
            // A vector that grows has twice what it needs, and both copies while it is moved.
            b',' => 3 * VALUE,
            b'[' => 4 * VALUE,
            b'{' => 11 * (size_of::<String>() + VALUE) + 16,
            _ => 0,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use axum::http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn announced(length: Option<usize>) -> HeaderMap {
        length.map(|length| (CONTENT_LENGTH, HeaderValue::from(length))).into_iter().collect()
    }

    #[tokio::test]
    async fn few_large_documents_are_taken_at_once_and_small_ones_always() {
        let room = Room::default();
        let (small, large) = (announced(Some(SMALL)), announced(Some(SMALL + 1)));
        let mut inside = Vec::new();
        for _ in 0..AT_ONCE {
            inside.push(room.enter(&large).await.unwrap());
        }
        let nothing_said = announced(None);
        let mut waiting = pin!(room.enter(&nothing_said));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(room.enter(&small).await.is_none());
        inside.pop();
        assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Ready(Some(_))));
    }

    #[tokio::test]
    async fn a_document_of_nothing_but_values_is_refused_before_it_becomes_a_tree() {
        let item = json!({"DATA_TYPE": "transfer_item", "source_path": "/run7/file,1", "destination_path": "/archive/file,1",
                          "recursive": false, "external_checksum": "0".repeat(32), "checksum_algorithm": "md5"});
        let full = json!({"DATA_TYPE": "transfer", "DATA": vec![item; 100_000]}).to_string();
        assert!(Large::read(&HeaderMap::new(), Body::from(full)).await.is_ok());
        for piece in ["0,", "{},", "[],"] {
            let many = format!("[{}0]", piece.repeat((MOST - 3) / piece.len()));
            let refused = Large::read(&HeaderMap::new(), Body::from(many)).await.unwrap_err();
            assert_eq!(refused.status.as_u16(), 413, "{piece}");
        }
    }
}
