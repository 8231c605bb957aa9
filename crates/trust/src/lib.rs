//! Who is who: TLS over any stream, certificates and proxies, delegation, tokens, pinned keys.
//!
//! Nothing here opens a socket. Bytes of the wire are arguments and results; only the loaders of credentials and trust anchors
//! read files, and only [`site`] writes certificates.

pub mod bearer;
pub mod clock;
pub mod credential;
pub mod explain;
pub mod fault;
pub mod gsi;
pub mod kept;
pub mod krb5;
pub mod make;
pub mod mapping;
pub mod oidc;
pub mod peer;
pub mod pins;
pub mod places;
pub mod psk;
pub mod roots;
pub mod signature;
pub mod site;
pub mod tls;
pub mod token;
mod verified;
pub mod wrap;

pub use fault::TrustFault;
pub use peer::{OwnChain, Peer, PeerJudge};
