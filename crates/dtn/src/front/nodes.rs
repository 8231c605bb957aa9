//! Data nodes of a striped server: they dial in, prove that they know the secret, and serve movers.
//!
//! Handshake, before the mover protocol starts on the same stream. Each side proves knowledge of the
//! secret over the other's fresh challenge, so neither replay nor a stranger's front or node works:
//!
//! ```text
//! node  -> front   MAGIC (8) | node challenge (32)
//! front -> node    front challenge (32) | proof("front", node challenge, front challenge) (32)
//! node  -> front   proof("node", front challenge, node challenge) (32)
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use argon2::password_hash::rand_core::{OsRng, RngCore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::link::MoverLink;
use crate::keepalive;
use crate::mover::message::DataSettings;

const MAGIC: &[u8; 8] = b"WHBNODE1";
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The secret that a front and its data nodes share.
#[derive(Clone)]
pub struct NodeSecret([u8; 32]);

impl NodeSecret {
    /// Derives the key from the content of the secret file (surrounding white space is ignored).
    pub fn from_file(path: &std::path::Path) -> Result<Self, Fault> {
        let bytes = std::fs::read(path)
            .map_err(|error| Fault::from_io(error, "read node secret").subject(path.display().to_string()))?;
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

    fn proof(&self, role: &[u8], theirs: &[u8; 32], own: &[u8; 32]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(role).update(theirs).update(own);
        hasher.finalize()
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

/// Admits data nodes for ever.
pub async fn admit(listener: TcpListener, secret: NodeSecret, settings: DataSettings, data_side: Arc<super::DataSide>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                drop(tokio::spawn(admit_one(stream, peer, secret.clone(), settings.clone(), data_side.clone())))
            }
            Err(error) => super::accept::pause_after_error(&error).await,
        }
    }
}

async fn admit_one(
    mut stream: TcpStream,
    peer: SocketAddr,
    secret: NodeSecret,
    settings: DataSettings,
    data_side: Arc<super::DataSide>,
) {
    let joined = async {
        keepalive::set(&stream, keepalive::NODE).map_err(|error| Fault::from_io(error, "admit data node"))?;
        challenge_node(&mut stream, &secret).await?;
        MoverLink::open(stream, settings).await
    };
    match joined.await {
        Ok(link) => {
            tracing::info!(%peer, processors = link.processors, "data node joined");
            data_side.nodes.add(link.clone());
            link.lost().await;
            data_side.retire(&link);
            tracing::warn!(%peer, "data node left");
        }
        Err(fault) => tracing::warn!(%peer, %fault, "data node refused"),
    }
}

async fn challenge_node<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, secret: &NodeSecret) -> Result<(), Fault> {
    within(async {
        let mut hello = [0; 40];
        stream.read_exact(&mut hello).await?;
        let (magic, theirs) = hello.split_at(8);
        let theirs: &[u8; 32] = theirs.try_into().expect("40 - 8 bytes");
        let own = fresh_challenge();
        stream.write_all(&own).await?;
        stream.write_all(secret.proof(b"front", theirs, &own).as_bytes()).await?;
        let mut proof = [0; 32];
        stream.read_exact(&mut proof).await?;
        // `Hash` compares in constant time.
        Ok(magic == MAGIC && secret.proof(b"node", &own, theirs) == blake3::Hash::from_bytes(proof))
    })
    .await
}

/// The node's side of the handshake.
pub async fn prove_to_front<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    secret: &NodeSecret,
) -> Result<(), Fault> {
    within(async {
        let own = fresh_challenge();
        stream.write_all(MAGIC).await?;
        stream.write_all(&own).await?;
        let mut answer = [0; 64];
        stream.read_exact(&mut answer).await?;
        let (theirs, proof) = answer.split_at(32);
        let theirs: &[u8; 32] = theirs.try_into().expect("half of 64 bytes");
        let proof: [u8; 32] = proof.try_into().expect("half of 64 bytes");
        let genuine = secret.proof(b"front", &own, theirs) == blake3::Hash::from_bytes(proof);
        if genuine {
            stream.write_all(secret.proof(b"node", theirs, &own).as_bytes()).await?;
        }
        Ok(genuine)
    })
    .await
}

async fn within(handshake: impl Future<Output = std::io::Result<bool>>) -> Result<(), Fault> {
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(refused("the other side does not know the node secret")),
        Ok(Err(error)) => Err(Fault::from_io(error, "join front and data node").side(Side::Peer)),
        Err(_) => Err(refused("no handshake in time")),
    }
}

fn refused(detail: &str) -> Fault {
    Fault::new(FaultCode::LoginFailed, "join front and data node").side(Side::Peer).detail(detail)
}

fn fresh_challenge() -> [u8; 32] {
    let mut bytes = [0; 32];
    OsRng.fill_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn join(front: NodeSecret, node: NodeSecret) -> (bool, bool) {
        let (mut a, mut b) = tokio::io::duplex(256);
        let front = async move { challenge_node(&mut a, &front).await.is_ok() };
        let node = async move { prove_to_front(&mut b, &node).await.is_ok() };
        tokio::join!(front, node)
    }

    #[tokio::test]
    async fn only_those_who_share_the_secret_meet() {
        let secret = NodeSecret([1; 32]);
        assert_eq!(join(secret.clone(), secret.clone()).await, (true, true));
        assert_eq!(join(secret, NodeSecret([2; 32])).await, (false, false));
    }

    #[tokio::test]
    async fn a_front_cannot_be_fooled_with_its_own_proof() {
        // A reflection: the intruder answers with what the front itself proved.
        let (mut a, mut b) = tokio::io::duplex(256);
        let intruder = async move {
            b.write_all(MAGIC).await.unwrap();
            b.write_all(&[7; 32]).await.unwrap();
            let mut answer = [0; 64];
            b.read_exact(&mut answer).await.unwrap();
            b.write_all(&answer[32..]).await.unwrap();
        };
        let secret = NodeSecret([1; 32]);
        let (front, ()) = tokio::join!(challenge_node(&mut a, &secret), intruder);
        assert!(front.is_err());
    }
}
