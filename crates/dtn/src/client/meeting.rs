//! Servers that take no connections: they make some, which somebody keeps for us.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::timeout;
use uuid::Uuid;
use whimbrel_engine::{Fault, FaultCode};

use super::target::{Address, SessionOptions, Target};

const OP: &str = "connect";

/// Who keeps connections that servers have made.
pub trait MeetingPlace: fmt::Debug + Send + Sync {
    /// One of a server, as our end of a socket pair, in non-blocking mode; waits until there is one.
    ///
    /// # Errors
    /// Who keeps them cannot be asked.
    fn meet(&self, server: Uuid) -> Pin<Box<dyn Future<Output = Result<UnixStream, Fault>> + Send + '_>>;
}

/// Which servers of a target are met, and where. Equal by its servers.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// By the address under which they stand in the target.
    servers: BTreeMap<Address, Uuid>,
    place: Arc<dyn MeetingPlace>,
}

impl PartialEq for Meeting {
    fn eq(&self, other: &Self) -> bool {
        self.servers == other.servers
    }
}

impl Eq for Meeting {}

impl Hash for Meeting {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.servers.hash(state);
    }
}

impl Meeting {
    /// These servers, met there.
    pub fn new(servers: BTreeMap<Address, Uuid>, place: Arc<dyn MeetingPlace>) -> Self {
        Self { servers, place }
    }

    /// Whether a server is met and not dialled.
    pub fn is_for(&self, address: &Address) -> bool {
        self.servers.contains_key(address)
    }
}

/// The connection to a target that is met; `None`: it is to be dialled.
///
/// # Errors
/// `HostUnreachable` if it does not connect within the time for connections.
pub(super) async fn meet(target: &Target, options: &SessionOptions) -> Result<Option<tokio::net::UnixStream>, Fault> {
    let Some((meeting, server)) = target.meeting.as_ref().and_then(|meeting| {
        let server = meeting.servers.get(&target.address())?;
        Some((meeting, *server))
    }) else {
        return Ok(None);
    };
    let limit = options.connect_timeout;
    let stream = timeout(limit, meeting.place.meet(server)).await.unwrap_or_else(|_| Err(absent(&target.to_string())));
    let stream =
        stream.and_then(|stream| tokio::net::UnixStream::from_std(stream).map_err(|error| Fault::from_io(error, OP)));
    stream.map(Some).map_err(|fault| fault.subject(target.to_string()))
}

/// The fault of a server that does not connect; temporary.
pub fn absent(name: &str) -> Fault {
    let fault = Fault::new(FaultCode::HostUnreachable, OP).subject(name);
    fault.detail("the data transfer node has not connected to the service: it is switched off, or its network is away")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl MeetingPlace for Nobody {
        fn meet(&self, _: Uuid) -> Pin<Box<dyn Future<Output = Result<UnixStream, Fault>> + Send + '_>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_connect_is_named_and_may_come_later() {
        let target = Target::anonymous("laptop-1", 0);
        let servers = BTreeMap::from([(target.address(), Uuid::nil())]);
        let target = Target { meeting: Some(Meeting::new(servers, Arc::new(Nobody))), ..target };
        let options = SessionOptions { connect_timeout: Duration::from_millis(20), ..SessionOptions::default() };
        let fault = meet(&target, &options).await.unwrap_err();
        assert_eq!((fault.code, fault.subject.as_str()), (FaultCode::HostUnreachable, "laptop-1"));
        assert!(fault.to_string().contains("has not connected"), "{fault}");
        let dialled = Target { host: "elsewhere".into(), ..target };
        assert!(meet(&dialled, &options).await.unwrap().is_none());
    }
}
