//! One connection: its handshake, then its requests.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_openssl::SslStream;
use tower_service::Service;
use whimbrel_engine::guard::{Doors, Visitor};
use whimbrel_trust::tls::ServerTls;

use super::patience::Patience;
use super::{Peer, Security, stopped};
use crate::limits::Limits;
use crate::request_id::RequestId;

/// A connection's place among the others; given back when it is dropped.
pub(super) struct Door {
    doors: Arc<Mutex<Doors>>,
    visitor: Visitor,
}

impl Door {
    pub(super) fn new(doors: Arc<Mutex<Doors>>, visitor: Visitor) -> Self {
        Self { doors, visitor }
    }

    /// It is no longer one that waits.
    fn greeted(&self) {
        // Without a limit for one user nobody is refused here.
        let _inside = self.doors.lock().expect("nothing panics with it").log_in(self.visitor, "", None);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.doors.lock().expect("nothing panics with it").leave(self.visitor);
    }
}

pub(super) struct Connection {
    pub(super) door: Door,
    pub(super) address: SocketAddr,
    pub(super) security: Security,
    pub(super) limits: Limits,
    pub(super) router: Router,
    pub(super) stop: watch::Receiver<bool>,
}

impl Connection {
    pub(super) async fn run(self, stream: TcpStream) {
        // Small answers are not to wait for acknowledgements; where that cannot be set they do.
        let _set = stream.set_nodelay(true);
        match self.security.clone() {
            Security::Tls(tls) => match timeout(self.limits.handshake, handshake(&tls, stream)).await {
                Ok(Some(stream)) => self.converse(stream).await,
                _ => tracing::debug!(address = %self.address, "a TLS handshake came to nothing"),
            },
            Security::Loopback | Security::Outside => self.converse(stream).await,
        }
    }

    async fn converse(mut self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        self.door.greeted();
        let peer = Peer { address: self.address };
        let router = self.router.clone();
        let service = service_fn(move |request| answer(router.clone(), peer, request));
        let stream = Patience::new(stream, self.limits.idle_answer);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_headers(self.limits.head_fields)
            .max_header_size(self.limits.head_bytes);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut self.stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(address = %self.address, "a connection broke: {error}");
        }
    }
}

async fn handshake(tls: &ServerTls, stream: TcpStream) -> Option<SslStream<TcpStream>> {
    let mut stream = SslStream::new(tls.connection().ok()?, stream).ok()?;
    Pin::new(&mut stream).accept().await.ok()?;
    Some(stream)
}

async fn answer(
    mut router: Router,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    let (id, began) = (RequestId::random(), Instant::now());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(id);
    request.extensions_mut().insert(peer);
    let mut response = router.call(request).await?;
    let name = HeaderValue::from_str(id.as_str()).expect("its letters are ASCII");
    response.headers_mut().insert("x-request-id", name);
    let (status, elapsed) = (response.status().as_u16(), began.elapsed().as_millis());
    tracing::info!(request = %id, from = %peer.address, %method, path, status, ms = elapsed, "answered");
    Ok(response)
}
