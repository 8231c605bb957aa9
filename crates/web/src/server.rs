//! Accepts connections, and gives their requests to a router.

mod connection;
mod patience;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use openssl::rand::rand_bytes;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use whimbrel_engine::guard::Doors;
use whimbrel_trust::tls::ServerTls;

use crate::limits::Limits;
use connection::Connection;

/// How connections are protected.
#[derive(Clone)]
pub enum Security {
    /// By TLS.
    Tls(ServerTls),
    /// Not at all: clients on this host only.
    Loopback,
    /// Not at all, from everywhere: something in front of the server does it.
    Outside,
}

/// What a server needs to begin.
#[derive(Clone)]
pub struct Listen {
    /// Where; port 0 lets the system choose.
    pub address: SocketAddr,
    /// How connections are protected.
    pub security: Security,
    /// Limits.
    pub limits: Limits,
}

/// Who sent a request; with every request's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Where from.
    pub address: SocketAddr,
}

/// Why a server does not begin.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// Passwords and tokens would cross a network in clear.
    #[error("{address} is no loopback address: http without TLS is for this host only")]
    Clear {
        /// The address.
        address: SocketAddr,
    },
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    security: Security,
    limits: Limits,
}

impl Server {
    /// Begins to listen; nothing is accepted before [`Server::serve`].
    ///
    /// # Errors
    /// [`WebError`]: the address is taken or not ours, or not protected.
    pub async fn bind(listen: Listen) -> Result<Self, WebError> {
        let address = listen.address;
        if matches!(listen.security, Security::Loopback) && !address.ip().is_loopback() {
            return Err(WebError::Clear { address });
        }
        let failed = |error| WebError::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, security: listen.security, limits: listen.limits })
    }

    /// Takes a socket that listens already.
    ///
    /// # Errors
    /// [`WebError`]: it cannot be used.
    pub fn on(listener: std::net::TcpListener, security: Security, limits: Limits) -> Result<Self, WebError> {
        let unknown = SocketAddr::from(([0; 4], 0));
        let address = listener.local_addr().map_err(|error| WebError::Listen { address: unknown, error })?;
        let failed = |error| WebError::Listen { address, error };
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener: TcpListener::from_std(listener).map_err(failed)?, address, security, limits })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if matches!(self.security, Security::Tls(_)) { "https" } else { "http" }
    }

    /// Serves until `stop` is `true`, or its sender gone; then running requests have their grace.
    pub async fn serve(self, router: Router, mut stop: watch::Receiver<bool>) {
        let doors = Arc::new(Mutex::new(Doors::new(self.limits.doors.clone())));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stopped(&mut stop) => break,
                Some(_ended) = connections.join_next() => continue,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: those of connections that end come back.
                    tracing::warn!("cannot accept a connection: {error}");
                    pause(&mut connections).await;
                    continue;
                }
            };
            let entered = doors.lock().expect("nothing panics with it").enter(address.ip(), dice());
            match entered {
                Ok(visitor) => {
                    let door = connection::Door::new(doors.clone(), visitor);
                    let connection = Connection {
                        door,
                        address,
                        security: self.security.clone(),
                        limits: self.limits.clone(),
                        router: router.clone(),
                        stop: stop.clone(),
                    };
                    connections.spawn(connection.run(stream));
                }
                Err(refusal) => tracing::debug!(%address, "a connection is refused: {refusal}"),
            }
        }
        drop(self.listener);
        finish(connections, self.limits.grace).await;
    }
}

/// Until the server is to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Its sender's end is a stop, too.
    let _stop = stop.wait_for(|stop| *stop).await;
}

/// Until a connection ends, or for a moment.
async fn pause(connections: &mut JoinSet<()>) {
    let moment = std::time::Duration::from_millis(50);
    if timeout(moment, connections.join_next()).await.is_ok_and(|ended| ended.is_none()) {
        tokio::time::sleep(moment).await;
    }
}

async fn finish(mut connections: JoinSet<()>, grace: std::time::Duration) {
    let end = Instant::now() + grace;
    while let Ok(Some(_ended)) = tokio::time::timeout_at(end, connections.join_next()).await {}
    connections.shutdown().await;
}

fn dice() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness a full house refuses nobody by dice; its other limits hold.
    let _filled = rand_bytes(&mut bytes);
    u32::from_ne_bytes(bytes)
}
