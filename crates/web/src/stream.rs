//! Answers whose end is not known when they begin.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces that wait for a client at the most.
const WAITING: usize = 4;

struct Pieces(Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// A body, and who fills it: it ends when the sender is gone, and the sender is told when the client is.
pub fn stream() -> (Sender<Bytes>, Body) {
    let (sender, receiver) = channel(WAITING);
    (sender, Body::new(Pieces(receiver)))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn pieces_come_in_order_and_the_end_is_the_senders() {
        let (sender, body) = stream();
        for piece in ["one ", "two"] {
            sender.send(Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        drop(sender);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "one two");
    }

    #[tokio::test]
    async fn a_client_that_goes_is_told() {
        let (sender, body) = stream();
        drop(body);
        sender.closed().await;
    }
}
