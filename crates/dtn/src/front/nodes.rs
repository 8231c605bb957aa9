//! Data nodes of a striped server: they dial in, prove that they know the secret ([`super::sealed`]), and serve movers.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use whimbrel_engine::{Fault, FaultCode};

use super::link::MoverLink;
use super::sealed;
use crate::keepalive;
use crate::mover::message::DataSettings;
use crate::small::SmallFile;

/// Bytes on their way between the link and the wire.
const ON_THE_WAY: usize = 256 << 10;

/// Longest file with a secret, bytes.
const LONGEST_SECRET: u64 = 64 << 10;

/// The secret that a front and its data nodes share.
#[derive(Clone)]
pub struct NodeSecret([u8; 32]);

impl NodeSecret {
    /// Derives the key from the content of the secret file (surrounding white space is ignored). One that everybody may write is refused;
    /// of one that others may read, the log says so.
    pub fn from_file(path: &std::path::Path) -> Result<Self, Fault> {
        let file = SmallFile::open(path, "read node secret", LONGEST_SECRET)?;
        file.check_writers()?;
        if file.facts()?.mode() & 0o004 != 0 {
            let file = path.display();
            tracing::warn!(%file, "everybody on this host may read the node secret, and with it join as a data node: chmod 600");
        }
        let bytes = file.bytes()?;
        let text = bytes.trim_ascii();
        if text.len() < 16 {
            let short = Fault::new(FaultCode::InvalidArgument, "read node secret").subject(path.display().to_string());
            return Err(short.detail("the secret must have at least 16 bytes"));
        }
        Ok(Self(blake3::derive_key("whimbrel data node secret v1", text)))
    }

    /// The derived key, for the process that compares.
    pub fn key(&self) -> [u8; 32] {
        self.0
    }

    /// From [`Self::key`].
    pub fn from_key(key: [u8; 32]) -> Self {
        Self(key)
    }
}

/// The data nodes joined now.
#[derive(Default)]
pub struct NodeRegistry {
    links: Mutex<Vec<Arc<MoverLink>>>,
}

impl NodeRegistry {
    /// Nodes that take new work, in the order they joined.
    pub fn ready(&self) -> Vec<Arc<MoverLink>> {
        self.links().iter().filter(|link| link.takes_work()).cloned().collect()
    }

    /// Nodes whose stream stands or stood, in the order they joined.
    pub fn all(&self) -> Vec<Arc<MoverLink>> {
        self.links().clone()
    }

    fn links(&self) -> MutexGuard<'_, Vec<Arc<MoverLink>>> {
        self.links.lock().expect("no code panics while it holds the list")
    }

    pub(super) fn remove(&self, link: &Arc<MoverLink>) {
        self.links().retain(|one| !Arc::ptr_eq(one, link));
    }

    fn add(&self, link: Arc<MoverLink>) {
        self.links().push(link);
    }
}

/// Connections that have not proven yet that they are data nodes; more wait in the queue of the listener.
const MOST_STRANGERS: usize = 64;

/// Admits data nodes for ever.
pub async fn admit(listener: TcpListener, secret: NodeSecret, settings: DataSettings, data_side: Arc<super::DataSide>) {
    let strangers = Arc::new(Semaphore::new(MOST_STRANGERS));
    loop {
        let place = strangers.clone().acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok((stream, peer)) => {
                drop(tokio::spawn(admit_one(stream, peer, place, secret.clone(), settings.clone(), data_side.clone())))
            }
            Err(error) => super::accept::pause_after_error(&error).await,
        }
    }
}

async fn admit_one(
    mut stream: TcpStream,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
    secret: NodeSecret,
    settings: DataSettings,
    data_side: Arc<super::DataSide>,
) {
    let joined = async {
        keepalive::set(&stream, keepalive::NODE).map_err(|error| Fault::from_io(error, "admit data node"))?;
        let tls = sealed::admit_node(&mut stream, &secret).await?;
        drop(place);
        let (link, clear) = tokio::io::duplex(ON_THE_WAY);
        drop(tokio::spawn(async move {
            if let Err(error) = sealed::carry(stream, clear, tls).await {
                tracing::debug!(%peer, %error, "the stream of a data node ended");
            }
        }));
        MoverLink::open(link, settings).await
    };
    match joined.await {
        Ok(link) => {
            tracing::info!(%peer, processors = link.processors, uid = link.uid, "data node joined");
            data_side.nodes.add(link.clone());
            link.lost().await;
            data_side.retire(&link);
            tracing::warn!(%peer, "data node left");
        }
        Err(fault) => tracing::warn!(%peer, %fault, "data node refused"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_that_everybody_may_choose_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "sixteen bytes or more\n").unwrap();
        let allow = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o600, 0o644] {
            allow(mode);
            assert!(NodeSecret::from_file(&path).is_ok(), "{mode:o}");
        }
        allow(0o646);
        assert_eq!(NodeSecret::from_file(&path).err().unwrap().code, FaultCode::NotAuthorized);
        allow(0o600);
        std::fs::write(&path, "  fifteen bytes  ").unwrap();
        assert!(NodeSecret::from_file(&path).is_err());
    }
}
