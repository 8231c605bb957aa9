//! Listening sockets, bound before anything else runs: ports below 1024 need root.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use whimbrel_engine::Fault;

use crate::front::config::{DtnConfig, resolve};
use crate::packets::Channel;

/// Sockets of a DTN, bound but not yet served.
#[derive(Debug)]
pub struct Bound {
    /// For control connections.
    pub control: Vec<TcpListener>,
    /// For control connections where TLS comes before the greeting.
    pub tls: Vec<TcpListener>,
    /// Where data nodes join.
    pub nodes: Option<TcpListener>,
    /// For the metrics page.
    pub metrics: Option<TcpListener>,
    /// For HTTPS; the front has nothing to do with it.
    pub https: Option<TcpListener>,
    /// Where the front gets connections that this server makes; then there are no sockets for control connections.
    pub calls: Option<Calls>,
    /// Where data connections of others are joined.
    pub relay: Option<Joins>,
    /// The one control connection that is served; then there is nothing else.
    pub connection: Option<OwnedFd>,
}

/// A socket for data connections of others, for a process that the front tells whom to join.
#[derive(Debug)]
pub struct Joins {
    /// The socket.
    pub listener: TcpListener,
    /// Its address.
    pub address: SocketAddr,
    /// The front's end.
    pub front: Channel,
    /// That process' end.
    pub relay: Channel,
}

/// A channel for connections that this server makes.
#[derive(Debug)]
pub struct Calls {
    /// The front's end.
    pub front: Channel,
    /// The end of the process that makes them.
    pub caller: Channel,
    /// With whom they are left, for people.
    service: String,
}

impl Bound {
    /// Binds every configured address.
    pub fn new(config: &DtnConfig) -> Result<Self, Fault> {
        let calls = config.outbound()?.map(Calls::new).transpose()?;
        let listened = if calls.is_some() { Vec::new() } else { config.listen_addresses() };
        let control = listened.iter().map(|address| bind(address)).collect::<Result<_, _>>()?;
        let tls = config.tls.iter().flat_map(|tls| &tls.listen);
        let tls = tls.map(|address| bind(address)).collect::<Result<_, _>>()?;
        let nodes = config.node_listen.as_deref().map(bind).transpose()?;
        let metrics = config.metrics.as_deref().map(bind).transpose()?;
        let https = config.join.as_ref().and_then(|join| join.https.as_deref()).map(bind).transpose()?;
        let relay = config.join.as_ref().and_then(|join| join.relay.as_deref()).map(Joins::new).transpose()?;
        Ok(Self { control, tls, nodes, metrics, https, calls, relay, connection: None })
    }

    /// One control connection, which somebody else has accepted, and nothing that is listened for.
    pub fn to(connection: OwnedFd) -> Self {
        let (control, tls) = (Vec::new(), Vec::new());
        let (nodes, metrics, https, calls, relay) = (None, None, None, None, None);
        Self { control, tls, nodes, metrics, https, calls, relay, connection: Some(connection) }
    }

    /// All of the front, those for control connections first, then those inside TLS, then that for nodes, then that for metrics, then the
    /// channel for connections that this server makes, then that for what is announced; or the one connection.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let sockets = self.control.iter().chain(&self.tls).chain(&self.nodes).chain(&self.metrics).map(AsFd::as_fd);
        let sockets = sockets.chain(self.calls.iter().map(|calls| calls.front.as_fd()));
        let sockets = sockets.chain(self.relay.iter().map(|relay| relay.front.as_fd()));
        sockets.chain(self.connection.iter().map(AsFd::as_fd)).collect()
    }

    /// What scripts wait for: one line for each address.
    pub fn announcement(&self) -> String {
        let mut lines = String::new();
        let at = |listener: &TcpListener| listener.local_addr().ok();
        for address in self.control.iter().filter_map(at) {
            lines += &format!("listening on ftp://{address}/\n");
        }
        for address in self.tls.iter().filter_map(at) {
            lines += &format!("listening on ftps://{address}/\n");
        }
        if let Some(address) = self.nodes.as_ref().and_then(at) {
            lines += &format!("data nodes join at {address}\n");
        }
        if let Some(address) = self.metrics.as_ref().and_then(at) {
            lines += &format!("metrics at http://{address}/metrics\n");
        }
        if let Some(address) = self.https.as_ref().and_then(at) {
            lines += &format!("collections at https://{address}/\n");
        }
        if let Some(relay) = &self.relay {
            lines += &format!("joining data connections at {}\n", relay.address);
        }
        if let Some(calls) = &self.calls {
            lines += &format!("connecting to {}\n", calls.service);
        }
        lines
    }
}

impl Calls {
    fn new(service: String) -> Result<Self, Fault> {
        let (front, caller) = Channel::pair().map_err(|error| Fault::from_io(error, "make a channel"))?;
        Ok(Self { front, caller, service })
    }
}

impl Joins {
    fn new(address: &str) -> Result<Self, Fault> {
        let failed = |error| Fault::from_io(error, "listen").subject(address);
        let listener = bind(address)?;
        let address = listener.local_addr().map_err(failed)?;
        let (front, relay) = Channel::pair().map_err(failed)?;
        Ok(Self { listener, address, front, relay })
    }
}

fn bind(address: &str) -> Result<TcpListener, Fault> {
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
    Ok(socket.into())
}
