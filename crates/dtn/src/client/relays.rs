//! Servers by way of which two others exchange data, neither of which takes connections.

use std::net::SocketAddr;

use tokio::sync::Mutex;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::Op;
use whimbrel_proto::relay::{Announcement, MOST_CONNECTIONS};
use whimbrel_trust::psk;

use super::pair::listening;
use super::remote::Remote;
use super::target::{SessionOptions, Target};

const OP: &str = "find a relay";

/// For how long connections of a data handle may come to a relay, seconds: until its first transfer begins, and its file is open.
const SECONDS: u32 = 900;

/// Relays that may be used, the best one first.
pub struct Relays {
    targets: Vec<Target>,
    options: SessionOptions,
    /// Where something was announced last.
    session: Mutex<Option<Remote>>,
}

impl Relays {
    /// These; `None` if there are none.
    pub fn new(targets: &[Target], options: &SessionOptions) -> Option<Self> {
        let (targets, options) = (targets.to_vec(), options.clone());
        (!targets.is_empty()).then(|| Self { targets, options, session: Mutex::new(None) })
    }

    /// Announces a data handle with this nonce at one of them; where its connections are to go.
    ///
    /// # Errors
    /// `ServerBusy`, whatever is wrong with all of them: one may come back, or another be there.
    pub async fn announce(&self, nonce: &[u8; 16], connections: u16) -> Result<SocketAddr, Fault> {
        let connections = connections.clamp(1, MOST_CONNECTIONS);
        let what = Op::Relay(Announcement { token: psk::relay_token(nonce), connections, seconds: SECONDS });
        let mut session = self.session.lock().await;
        if let Some(remote) = session.as_mut() {
            match announced(remote, &what).await {
                Ok(address) => return Ok(address),
                // It may just have been silent for too long.
                Err(fault) => tracing::debug!(%fault, "a relay is left"),
            }
            *session = None;
        }
        let mut last = Fault::new(FaultCode::ServerBusy, OP).side(Side::Network);
        for target in &self.targets {
            let dialled = async {
                let (mut remote, _) = Remote::dial(target, &self.options, &[]).await?;
                let address = announced(&mut remote, &what).await?;
                Ok((remote, address))
            };
            match dialled.await {
                Ok((remote, address)) => {
                    *session = Some(remote);
                    return Ok(address);
                }
                Err(fault) => {
                    let fault: Fault = fault;
                    tracing::warn!(%target, %fault, "a relay cannot be used");
                    last = last.subject(target.to_string()).detail(fault.to_string());
                }
            }
        }
        Err(last)
    }
}

async fn announced(remote: &mut Remote, what: &Op) -> Result<SocketAddr, Fault> {
    Ok(listening(remote.run(what.clone()).await?)?[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn relays_that_are_away_are_a_reason_to_try_later() {
        // Bound and never listened at: whoever connects is refused.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let target = Target::anonymous("127.0.0.1", socket.local_addr().unwrap().port());
        let relays = Relays::new(&[target.clone(), target], &SessionOptions::default()).unwrap();
        let fault = relays.announce(&[1; 16], 4).await.unwrap_err();
        assert!(fault.code == FaultCode::ServerBusy && fault.is_temporary(), "{fault}");
        assert!(fault.to_string().contains("127.0.0.1"), "{fault}");
        assert!(Relays::new(&[], &SessionOptions::default()).is_none());
    }
}
