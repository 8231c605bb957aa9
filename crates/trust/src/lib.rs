//! Who is who: TLS over any stream, certificates and proxies, delegation, tokens, pinned keys.
//!
//! Nothing here opens a socket. Bytes of the wire are arguments and results; only the loaders of credentials and trust anchors
//! read files.

pub mod credential;
pub mod fault;
pub mod gsi;
pub mod make;
pub mod peer;
pub mod places;
pub mod psk;
pub mod tls;

pub use fault::TrustFault;
pub use peer::{OwnChain, Peer, PeerJudge};
