//! Control connections that this server has made: the process that makes them hands over what is inside.

use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};

use super::connection::{Beginning, Ends, serve};
use super::gate::Line;
use super::server::Server;
use crate::caller::Called;
use crate::packets::Channel;

/// Serves them until `drain` turns true or nobody makes any more.
pub(super) async fn take(
    channel: Channel,
    server: Arc<Server>,
    slots: Arc<Semaphore>,
    mut drain: watch::Receiver<bool>,
) {
    let line = match Line::new(channel) {
        Ok(line) => line,
        Err(error) => return tracing::error!(%error, "connections that this server makes cannot be taken"),
    };
    loop {
        let packet = tokio::select! {
            packet = line.when(Interest::READABLE, Channel::receive::<Called>) => packet,
            _ = drain.wait_for(|drain| *drain) => return,
        };
        match packet {
            Ok(Some((Called::Taken, descriptors))) => {
                for descriptor in descriptors {
                    admit(StdStream::from(descriptor), &server, &slots, &drain);
                }
            }
            // The monitor sees that end.
            Ok(None) => return,
            Err(error) => return tracing::error!(%error, "who makes connections cannot be understood"),
        }
    }
}

fn admit(stream: StdStream, server: &Arc<Server>, slots: &Arc<Semaphore>, drain: &watch::Receiver<bool>) {
    let Ok(slot) = slots.clone().try_acquire_owned() else {
        return tracing::warn!("a control connection refused: there are as many as may be");
    };
    let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => return tracing::error!(%error, "a connection that this server made cannot be used"),
    };
    tracing::info!("control connection by way of the service");
    let (server, drain) = (server.clone(), drain.clone());
    tokio::spawn(async move {
        server.metrics.connection_opened();
        // Nobody's address: data connections have to prove themselves.
        let ends = Ends { made_here: true, ..Ends::default() };
        serve(stream, ends, Beginning::Clear, server.clone(), drain).await;
        server.metrics.connection_closed();
        drop(slot);
    });
}
