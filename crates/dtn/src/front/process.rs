//! The front as a process of its own: started by the monitor, without files and without rights.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::gate::{Gate, MonitorLink, lost};
use super::kerberos::Keys;
use super::relay::{self, Relay};
use super::{Listeners, Server, stdio};
use crate::confine::{self, Needs};
use crate::descriptors;
use crate::monitor::message::{FromMonitor, FrontSettings};
use crate::packets::Channel;
use crate::parent;

const OP: &str = "start front";

/// A data process that nobody uses for one to two times as long goes: users who come back soon find theirs.
const TIDY: Duration = Duration::from_secs(300);

/// Serves with the settings and sockets that come over standard input, to the end of the drain.
pub fn serve_standard_input() -> Result<(), Fault> {
    let failed = |error: io::Error| Fault::from_io(error, OP).side(Side::Us);
    parent::end_with_parent()?;
    // It will hold the host's key.
    confine::keep_secrets()?;
    let descriptors_allowed = descriptors::allow(descriptors::MOST);
    let channel = Channel::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let (settings, descriptors) = match channel.receive::<FromMonitor>().map_err(failed)? {
        Some((FromMonitor::Hello(settings), descriptors)) => (*settings, descriptors),
        _ => return Err(Fault::new(FaultCode::InvalidArgument, OP).detail("only `whimbrel dtn` starts it")),
    };
    if !settings.one {
        warn_about_descriptors(descriptors_allowed, settings.max_connections);
    }
    // Its library and keys are loaded while files can be opened.
    let kerberos = settings.kerberos.as_ref().map(Keys::new).transpose()?;
    confine::enter(&Needs::front(&settings), settings.sandbox)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let result = runtime.block_on(serve(channel, settings, kerberos, descriptors));
    runtime.shutdown_background();
    result
}

/// Descriptors that a connection may need where they all belong to one account, whose data process has a file, a listener
/// and several data connections for each.
const DESCRIPTORS_EACH: u64 = 10;

/// Descriptors of a process without connections, and some to spare.
const DESCRIPTORS_OWN: u64 = 100;

/// Connections that the host has no descriptors for would fail in the middle.
fn warn_about_descriptors(allowed: u64, max_connections: usize) {
    let needed = DESCRIPTORS_OWN + DESCRIPTORS_EACH * max_connections as u64;
    if allowed < needed {
        tracing::warn!(
            allowed,
            needed,
            max_connections,
            "this host allows a process fewer open files than so many connections may need: raise LimitNOFILE of the service (or \
             `ulimit -Hn`), or lower max_connections"
        );
    }
}

async fn serve(
    channel: Channel,
    settings: FrontSettings,
    kerberos: Option<Keys>,
    descriptors: Vec<OwnedFd>,
) -> Result<(), Fault> {
    let (drain, draining) = watch::channel(false);
    drain_on_signal(drain.clone())?;
    let link = Arc::new(MonitorLink::new(channel, drain)?);
    if settings.one {
        return serve_one(link, settings, kerberos, descriptors, draining).await;
    }
    let (listeners, relay) = listeners(&settings, descriptors)?;
    let relay = settings.relay.zip(relay).map(|(bound, channel)| Relay::new(channel, bound)).transpose()?;
    let server = Server::new(settings, Gate::Monitor(link.clone()))?.with_kerberos(kerberos).with_relay(relay);
    let server = Arc::new(server);
    tokio::spawn(relay::listen(server.clone()));
    tokio::spawn(keep_tidy(server.clone()));
    link.ready().await?;
    server.make_ready();
    server.warn_about_openness();
    listeners.serve(server, draining).await?;
    // An end that nobody asked for is no good one: whoever watches the server starts it anew.
    if link.is_lost() { Err(lost()) } else { Ok(()) }
}

/// Lets data processes go that nobody uses, for as long as the server stands.
async fn keep_tidy(server: Arc<Server>) {
    let mut looks = tokio::time::interval(TIDY);
    loop {
        looks.tick().await;
        server.data_side.tidy();
    }
}

/// Serves the one connection that the monitor was started for.
async fn serve_one(
    link: Arc<MonitorLink>,
    settings: FrontSettings,
    kerberos: Option<Keys>,
    mut descriptors: Vec<OwnedFd>,
    draining: watch::Receiver<bool>,
) -> Result<(), Fault> {
    let socket = descriptors.pop().filter(|_| descriptors.is_empty()).ok_or_else(|| not_fitting(descriptors.len()))?;
    let server = Arc::new(Server::new(settings, Gate::Monitor(link.clone()))?.with_kerberos(kerberos));
    link.ready().await?;
    server.make_ready();
    server.warn_about_openness();
    stdio::serve_socket(socket, &server, draining).await?;
    server.data_side.all().iter().for_each(|link| link.drain());
    Ok(())
}

fn not_fitting(found: usize) -> Fault {
    Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(format!("{found} descriptors do not fit the settings"))
}

/// The sockets in the order that [`FromMonitor::Hello`] gives them in.
fn listeners(settings: &FrontSettings, descriptors: Vec<OwnedFd>) -> Result<(Listeners, Option<Channel>), Fault> {
    let expected = settings.control + settings.tls + usize::from(settings.nodes) + usize::from(settings.metrics);
    let expected = expected + usize::from(settings.outbound) + usize::from(settings.relay.is_some());
    if descriptors.len() != expected {
        return Err(not_fitting(descriptors.len()));
    }
    let mut descriptors = descriptors;
    let relay = settings.relay.and_then(|_| descriptors.pop()).map(Channel::from);
    let calls = if settings.outbound { descriptors.pop().map(Channel::from) } else { None };
    let mut sockets = descriptors.into_iter().map(TcpListener::from);
    let control = sockets.by_ref().take(settings.control).collect();
    let tls = sockets.by_ref().take(settings.tls).collect();
    let nodes = if settings.nodes { sockets.next() } else { None };
    Ok((Listeners::new(control, tls, nodes, sockets.next())?.with_calls(calls), relay))
}

/// A switch that SIGTERM and SIGINT turn true: a service manager may ask all processes alike.
pub fn drain_on_signal(drain: watch::Sender<bool>) -> Result<(), Fault> {
    let failed = |error| Fault::from_io(error, "watch for signals");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("draining: running transfers are finished, nothing new is taken");
        drain.send_replace(true);
    });
    Ok(())
}
