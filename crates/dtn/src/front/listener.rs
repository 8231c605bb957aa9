//! Accepts control connections and drains on request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use whimbrel_engine::guard::Refusal;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::accept::pause_after_error;
use super::connection::{Beginning, Ends, serve};
use super::guard::Refused;
use super::nodes::NodeSecret;
use super::server::Server;
use super::urgent::UrgentStream;
use super::{called, metrics, nodes};
use crate::keepalive;
use crate::packets::Channel;

/// Sockets of a DTN, bound but not yet served.
pub struct Listeners {
    control: Vec<TcpListener>,
    /// Where TLS comes before the greeting.
    tls: Vec<TcpListener>,
    nodes: Option<TcpListener>,
    metrics: Option<TcpListener>,
    /// Connections that this server has made, one a packet.
    calls: Option<Channel>,
}

impl Listeners {
    /// Takes over bound sockets: for control connections, for those where TLS comes before the greeting, for data nodes, for metrics. Needs
    /// the runtime.
    pub fn new(
        control: Vec<std::net::TcpListener>,
        tls: Vec<std::net::TcpListener>,
        nodes: Option<std::net::TcpListener>,
        metrics: Option<std::net::TcpListener>,
    ) -> Result<Self, Fault> {
        let take = |listener| TcpListener::from_std(listener).map_err(|error| Fault::from_io(error, "listen"));
        Ok(Self {
            control: control.into_iter().map(take).collect::<Result<_, _>>()?,
            tls: tls.into_iter().map(take).collect::<Result<_, _>>()?,
            nodes: nodes.map(take).transpose()?,
            metrics: metrics.map(take).transpose()?,
            calls: None,
        })
    }

    /// The same with connections that this server makes.
    pub(super) fn with_calls(self, calls: Option<Channel>) -> Self {
        Self { calls, ..self }
    }

    /// Serves until `drain` turns true and the last connection has ended (or the drain's time is up).
    pub async fn serve(self, server: Arc<Server>, drain: watch::Receiver<bool>) -> Result<(), Fault> {
        let mut tasks = JoinSet::new();
        if let (Some(listener), Some(key)) = (self.nodes, server.settings().node_key) {
            let secret = NodeSecret::from_key(key);
            tasks.spawn(nodes::admit(listener, secret, server.settings().data.clone(), server.data_side.clone()));
        }
        if let Some(listener) = self.metrics {
            tasks.spawn(metrics::serve(listener, server.clone()));
        }
        let slots = Arc::new(Semaphore::new(server.settings().max_connections));
        let mut acceptors = JoinSet::new();
        let clear = self.control.into_iter().map(|listener| (listener, Beginning::Clear));
        let tls = self.tls.into_iter().map(|listener| (listener, Beginning::Tls));
        for (listener, beginning) in clear.chain(tls) {
            acceptors.spawn(accept(listener, beginning, server.clone(), slots.clone(), drain.clone()));
        }
        if let Some(channel) = self.calls {
            acceptors.spawn(called::take(channel, server.clone(), slots.clone(), drain.clone()));
        }
        while let Some(ended) = acceptors.join_next().await {
            // The others would go on, and nobody would know why some addresses do not answer.
            let failed = |why: &str| Fault::new(FaultCode::Internal, "accept connections").side(Side::Us).detail(why);
            ended.map_err(|error| failed(&error.to_string()))?;
            if !*drain.borrow() {
                return Err(failed("who hands them over is gone"));
            }
        }
        let patience = server.settings().drain_timeout.unwrap_or(Duration::MAX);
        if tokio::time::timeout(patience, all_free(&slots, &server)).await.is_err() {
            tracing::warn!("the drain's time is up; running transfers are cut");
        }
        for link in server.data_side.all() {
            link.drain();
        }
        Ok(())
    }
}

async fn all_free(slots: &Semaphore, server: &Server) {
    let all = server.settings().max_connections as u32;
    // Fails only on a closed semaphore, and nobody closes it.
    let _ = slots.acquire_many(all).await;
}

async fn accept(
    listener: TcpListener,
    beginning: Beginning,
    server: Arc<Server>,
    slots: Arc<Semaphore>,
    mut drain: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = drain.wait_for(|drain| *drain) => return,
        };
        match accepted {
            Ok((stream, peer)) => admit(stream, peer, beginning, &server, &slots, &drain),
            Err(error) => pause_after_error(&error).await,
        }
    }
}

fn admit(
    stream: TcpStream,
    peer: SocketAddr,
    beginning: Beginning,
    server: &Arc<Server>,
    slots: &Arc<Semaphore>,
    drain: &watch::Receiver<bool>,
) {
    let entered = server.guard.enter(peer.ip()).and_then(|pass| {
        let slot = slots.clone().try_acquire_owned().map_err(|_| Refusal::Full)?;
        Ok((pass, slot))
    });
    let (pass, slot) = match entered {
        Ok(place) => place,
        Err(refusal) => return refuse(&stream, peer, beginning, server, refusal),
    };
    if let Err(error) = keepalive::set(&stream, keepalive::CONTROL) {
        tracing::debug!(%peer, %error, "no keepalive");
    }
    let ends = Ends {
        peer: Some(canonical(peer)),
        local: stream.local_addr().ok().map(canonical),
        visitor: Some(pass.visitor()),
        made_here: false,
    };
    tracing::info!(%peer, "control connection");
    let (server, drain) = (server.clone(), drain.clone());
    tokio::spawn(async move {
        server.metrics.connection_opened();
        serve(UrgentStream::new(stream), ends, beginning, server.clone(), drain).await;
        server.metrics.connection_closed();
        drop((pass, slot));
    });
}

fn refuse(stream: &TcpStream, peer: SocketAddr, beginning: Beginning, server: &Server, refusal: Refusal) {
    if let Some(left_out) = server.guard.refused(Refused::Connection) {
        tracing::warn!(%peer, reason = %refusal, left_out, "control connection refused");
    }
    // One try: a client that cannot take a short line at once learns from the closed connection.
    if beginning == Beginning::Clear {
        let _ = stream.try_write(format!("421 Try again later: {refusal}.\r\n").as_bytes());
    }
}

/// An IPv4 peer of a dual-stack listener as the IPv4 address it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
