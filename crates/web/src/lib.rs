//! HTTPS as the service and the DTNs speak it: one server with limits, TLS by OpenSSL, and request ids. No business logic.
//!
//! Nothing is ever compressed: clients ask for that, and answers that mix secrets with what strangers sent stay safe.

pub mod body;
pub mod client;
pub mod limits;
pub mod request_id;
pub mod server;
pub mod stream;
pub mod upgrade;

pub use body::BodyError;
pub use limits::{BodyLimits, Limits, of_connections};
pub use request_id::RequestId;
pub use server::{Listen, Peer, Security, Server, WebError};
pub use stream::stream;
pub use upgrade::{Line, Offer};
