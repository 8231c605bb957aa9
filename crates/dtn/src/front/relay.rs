//! Data connections of two other servers, which a process beside this one joins: it is told what users announce.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::Interest;
use whimbrel_engine::{Fault, Side};
use whimbrel_proto::op::{Failure, FailureKind, Outcome};
use whimbrel_proto::relay::Announcement;

use super::gate::Line;
use super::server::Server;
use crate::packets::Channel;
use crate::relay::{Passed, ToRelay};

const OP: &str = "announce a token";

/// The way to that process.
#[derive(Debug)]
pub(super) struct Relay {
    line: Line,
    /// Where it listens.
    bound: SocketAddr,
}

impl Relay {
    /// Takes the channel over.
    pub(super) fn new(channel: Channel, bound: SocketAddr) -> Result<Self, Fault> {
        let line = Line::new(channel).map_err(|error| Fault::from_io(error, OP).side(Side::Us))?;
        Ok(Self { line, bound })
    }

    /// Has it join connections that say a token.
    fn announce(&self, user: &str, what: Announcement) -> Result<(), Failure> {
        let told = self.line.channel().send(&ToRelay::Announce(user.to_owned(), what), &[]);
        told.map_err(|error| {
            tracing::error!(%error, "who joins data connections cannot be told");
            failure(FailureKind::Busy, "Connections cannot be joined now.")
        })
    }

    /// Where it is reached by who reached this server here: as told for data, else as bound, else as reached.
    fn address(&self, told: Option<IpAddr>, local: Option<SocketAddr>) -> Option<SocketAddr> {
        let bound = Some(self.bound.ip()).filter(|ip| !ip.is_unspecified());
        let ip = told.or(bound).or(local.map(|local| local.ip()))?;
        Some(SocketAddr::new(ip, self.bound.port()))
    }
}

fn failure(kind: FailureKind, text: &str) -> Failure {
    Failure { kind, text: text.to_owned(), checksums: None }
}

impl Server {
    /// SITE RELAY of somebody who is logged in, and came to this address.
    pub(super) fn announce(&self, user: &str, what: Announcement, local: Option<SocketAddr>) -> Outcome {
        let settings = self.settings();
        let Some(relay) = self.relay() else {
            return Outcome::Failed(failure(FailureKind::NotSupported, "This server is no relay."));
        };
        // Else it would be a relay for anybody.
        if settings.anonymous && user == "anonymous" {
            return Outcome::Failed(failure(FailureKind::PermissionDenied, "Not for anonymous users."));
        }
        let Some(address) = relay.address(settings.data_address, local) else {
            return Outcome::Failed(failure(FailureKind::NotSupported, "It has no address that can be told."));
        };
        match relay.announce(user, what) {
            Ok(()) => Outcome::Listening(vec![address]),
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

/// Hears what has passed, until there is nobody who tells.
pub(super) async fn listen(server: Arc<Server>) {
    let Some(relay) = server.relay() else { return };
    loop {
        match relay.line.when(Interest::READABLE, Channel::receive::<Passed>).await {
            Ok(Some((passed, _))) => server.metrics.relay_passed(&passed),
            // The monitor sees that end.
            Ok(None) => return,
            Err(error) => return tracing::error!(%error, "who joins data connections cannot be understood"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn its_address_is_that_for_data_or_the_one_that_was_reached() {
        let relay = |bound: &str| Relay::new(Channel::pair().unwrap().0, bound.parse().unwrap()).unwrap();
        let local: SocketAddr = "192.0.2.1:2811".parse().unwrap();
        let told = |bound: &str, data: Option<IpAddr>| relay(bound).address(data, Some(local)).unwrap().to_string();
        assert_eq!(told("[::]:2812", None), "192.0.2.1:2812");
        assert_eq!(told("192.0.2.9:2812", None), "192.0.2.9:2812");
        assert_eq!(told("[::]:2812", Some("198.51.100.1".parse().unwrap())), "198.51.100.1:2812");
        assert_eq!(relay("0.0.0.0:1").address(None, None), None);
    }
}
