//! Accepts control connections and drains on request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use whimbrel_engine::Fault;

use super::accept::pause_after_error;
use super::config::resolve;
use super::connection::{Ends, serve};
use super::server::Server;
use super::urgent::UrgentStream;
use super::{metrics, nodes};
use crate::keepalive;

/// Sockets of a DTN, bound but not yet served.
pub struct Listeners {
    control: Vec<TcpListener>,
    nodes: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Binds every configured address.
    pub async fn bind(server: &Server) -> Result<Self, Fault> {
        let config = server.config();
        let mut control = Vec::new();
        for address in config.listen_addresses() {
            control.push(bind(&address).await?);
        }
        let nodes = match &config.node_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let metrics = match &config.metrics {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        Ok(Self { control, nodes, metrics })
    }

    /// Control addresses as bound.
    pub fn control_addresses(&self) -> Vec<SocketAddr> {
        self.control.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Address where data nodes join.
    pub fn node_address(&self) -> Option<SocketAddr> {
        self.nodes.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Address of the metrics page.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `drain` turns true and the last connection has ended (or the drain's time is up).
    pub async fn serve(self, server: Arc<Server>, drain: watch::Receiver<bool>) -> Result<(), Fault> {
        let mut tasks = JoinSet::new();
        if let Some(listener) = self.nodes {
            let secret = server.node_secret()?;
            tasks.spawn(nodes::admit(listener, secret, server.config().data_settings()?, server.data_side.clone()));
        }
        if let Some(listener) = self.metrics {
            tasks.spawn(metrics::serve(listener, server.clone()));
        }
        let slots = Arc::new(Semaphore::new(server.config().max_connections()));
        let mut acceptors = JoinSet::new();
        for listener in self.control {
            acceptors.spawn(accept(listener, server.clone(), slots.clone(), drain.clone()));
        }
        while acceptors.join_next().await.is_some() {}
        let patience = server.config().drain_timeout.map_or(Duration::MAX, Duration::from_secs);
        if tokio::time::timeout(patience, all_free(&slots, &server)).await.is_err() {
            tracing::warn!("the drain's time is up; running transfers are cut");
        }
        for link in server.data_side.all().await {
            link.drain();
        }
        Ok(())
    }
}

async fn all_free(slots: &Semaphore, server: &Server) {
    let all = server.config().max_connections() as u32;
    // Fails only on a closed semaphore, and nobody closes it.
    let _ = slots.acquire_many(all).await;
}

async fn accept(listener: TcpListener, server: Arc<Server>, slots: Arc<Semaphore>, mut drain: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = drain.wait_for(|drain| *drain) => return,
        };
        match accepted {
            Ok((stream, peer)) => admit(stream, peer, &server, &slots, &drain),
            Err(error) => pause_after_error(&error).await,
        }
    }
}

fn admit(
    stream: TcpStream,
    peer: SocketAddr,
    server: &Arc<Server>,
    slots: &Arc<Semaphore>,
    drain: &watch::Receiver<bool>,
) {
    let Ok(slot) = slots.clone().try_acquire_owned() else {
        tracing::warn!(%peer, "too many control connections");
        // One try: a client that cannot take a short line at once learns from the closed connection.
        let _ = stream.try_write(b"421 Too many connections, try again later.\r\n");
        return;
    };
    if let Err(error) = keepalive::set(&stream, keepalive::CONTROL) {
        tracing::debug!(%peer, %error, "no keepalive");
    }
    let ends = Ends { peer: Some(canonical(peer)), local: stream.local_addr().ok().map(canonical) };
    tracing::info!(%peer, "control connection");
    let (server, drain) = (server.clone(), drain.clone());
    tokio::spawn(async move {
        server.metrics.connection_opened();
        serve(UrgentStream::new(stream), ends, server.clone(), drain).await;
        server.metrics.connection_closed();
        drop(slot);
    });
}

/// An IPv4 peer of a dual-stack listener as the IPv4 address it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

async fn bind(address: &str) -> Result<TcpListener, Fault> {
    let failed = |error| Fault::from_io(error, "listen").subject(address);
    let address = resolve(address)?;
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).map_err(failed)?;
    if address.is_ipv6() {
        // One listener for both families where the address allows it.
        socket.set_only_v6(false).map_err(failed)?;
    }
    socket.set_reuse_address(true).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    socket.bind(&address.into()).map_err(failed)?;
    socket.listen(1024).map_err(failed)?;
    TcpListener::from_std(socket.into()).map_err(failed)
}
