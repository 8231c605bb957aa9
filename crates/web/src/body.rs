//! Reads the body of a request within its limits.

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

use crate::limits::BodyLimits;

/// Why a body was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is, or says that it is, larger than allowed.
    #[error("the body of the request is larger than {most} bytes")]
    TooLarge {
        /// Bytes allowed.
        most: usize,
    },
    /// It came too slowly.
    #[error("the body of the request came too slowly")]
    TooSlow,
    /// It ended early, or was not sent as HTTP says.
    #[error("the body of the request was not sent whole")]
    Broken,
}

impl BodyError {
    /// What a client is answered: status, and the code of the Transfer API.
    pub fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "ClientError.RequestTooLarge"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "ClientError.RequestTimeout"),
            Self::Broken => (StatusCode::BAD_REQUEST, "ClientError.BadRequest"),
        }
    }
}

/// The whole body.
///
/// # Errors
/// [`BodyError`]; what was read is dropped.
pub async fn read(mut body: Body, limits: BodyLimits) -> Result<Bytes, BodyError> {
    let too_large = BodyError::TooLarge { most: limits.most };
    if body.size_hint().lower() > limits.most as u64 {
        return Err(too_large);
    }
    let began = Instant::now();
    let mut bytes = BytesMut::new();
    loop {
        let bought = Duration::from_secs(bytes.len() as u64 / u64::from(limits.bytes_per_second.max(1)));
        let frame = timeout_at(began + limits.grace + bought, body.frame()).await.map_err(|_| BodyError::TooSlow)?;
        let Some(frame) = frame else { return Ok(bytes.freeze()) };
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if bytes.len() + data.len() > limits.most {
            return Err(too_large);
        }
        bytes.extend_from_slice(&data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BodyLimits = BodyLimits { most: 8, grace: Duration::from_secs(20), bytes_per_second: 1024 };

    #[tokio::test]
    async fn a_body_within_its_limit_is_read_and_a_larger_one_refused() {
        assert_eq!(read(Body::from("12345678"), LIMITS).await.as_deref(), Ok(&b"12345678"[..]));
        assert_eq!(read(Body::empty(), LIMITS).await.as_deref(), Ok(&b""[..]));
        assert_eq!(read(Body::from("123456789"), LIMITS).await, Err(BodyError::TooLarge { most: 8 }));
    }
}
