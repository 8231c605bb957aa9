//! TLS 1.2 and 1.3 over any stream, for control channels, ADAT tokens and data channels alike.

mod context;
mod failure;
mod machine;
mod pipe;
mod records;
mod resume;
mod seal;
mod traffic;

pub use context::{ClientTls, Clients, ServerTls, TicketKeys, verdict};
pub use failure::{handshake_failed, stream_failed};
pub use machine::{Plain, Progress, TlsMachine};
pub use records::{Broken, Incoming, OVERHEAD, Opener, RECORD, Sealer};
pub use resume::{ControlTls, Sessions, Stands};
pub use traffic::{keep_secrets, rehearsal, take_over};
